"""What is new is found without importing what takes long."""

import subprocess
import sys
from pathlib import Path

import pytest

from protodask.pipeline.each_file.ledger import news_of_predict
from protodask.pipeline.steps.predict import PredictStep

SLOW = ("asyncio", "dask", "distributed", "numpy", "pandas", "pyarrow", "sklearn", "zarr")

PROGRAM = """
import sys
from protodask.pipeline.each_file.ledger import news_of_predict
from protodask.pipeline.steps.predict import PredictStep

print(news_of_predict(PredictStep("model", (sys.argv[1],), sys.argv[2], each_file=True)).found)
print([name for name in sys.argv[3:] if name in sys.modules])
"""


def test_news_of_predict__is_light(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "in" / name).write_text(name)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "in"), str(tmp_path / "out.parquet"), *SLOW]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["2 new files", "[]"]


@pytest.mark.parametrize("each_file", [False, True])
def test_news_of_predict__none_of_other_steps_and_empty_folders(each_file: bool, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    if not each_file:
        (tmp_path / "in" / "a.csv").write_text("a")
    step = PredictStep("model", (str(tmp_path / "in"),), str(tmp_path / "out.parquet"), each_file=each_file)
    assert news_of_predict(step).found is None
