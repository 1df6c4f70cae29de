"""Which bash the scripts need, and what they say to an older one."""

import subprocess
from pathlib import Path

import pytest
from cluster._started import CLUSTER

SCRIPTS = ["ssh/train.sh", "local/train.sh", "slurm/train.sbatch"]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("version", "enough"), [("3 2", False), ("4 3", False), ("4 4", True), ("5 0", True)])
def test_scripts__say_which_bash_they_need(script: str, version: str, enough: bool, tmp_path: Path) -> None:
    # Bash does not let its version be set, so that the script is made to ask another variable.
    text = (CLUSTER / script).read_text()
    assert text.index("BASH_VERSINFO") < text.index("set -euo pipefail"), "asked before the first thing that needs it"
    copy = tmp_path / "script"
    copy.write_text(f"SAID=({version})\n" + text.replace("BASH_VERSINFO", "SAID"))
    done = subprocess.run(["bash", str(copy)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert ("needs 4.4 or later" in done.stderr) != enough
