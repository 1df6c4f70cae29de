"""Pipelines as Airflow DAGs, which only call the command line: copy this into the folder of DAGs and adapt it.

Written for Airflow 3; in Airflow 2 the imports are `from airflow import DAG` and
`from airflow.operators.bash import BashOperator`. Airflow's retries go on where the run before was: what was finished
is not done again. A gate's no (exit code 3) would be the same again, so it is not retried: the task is shown as
skipped, and the webhook of the pipeline file, or of `PROTODASK_NOTIFY`, tells of it.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

FOLDER = "/srv/protodask"
GATE_SAID_NO = 3

SCHEDULES = {"score": "5 * * * *", "refresh": "30 2 * * *"}

for name, schedule in SCHEDULES.items():
    with DAG(
        dag_id=f"protodask_{name}",
        schedule=schedule,
        start_date=datetime(2026, 1, 1),
        catchup=False,  # a run takes all that is new, so those that were missed need not be made up for
        max_active_runs=1,
        default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
        tags=["protodask"],
    ) as dag:
        BashOperator(
            task_id="run",
            bash_command=f"protodask run {name}.yaml --log json --metrics metrics/{name}.prom --overlap wait",
            cwd=FOLDER,
            skip_on_exit_code=GATE_SAID_NO,
            execution_timeout=timedelta(hours=12),
        )
    globals()[dag.dag_id] = dag
