"""Build the packages with what a checkout keeps beside them: results, evidence and its commit."""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

SHIPPED = ("RESULTS.md", "results.json", "figures/*.png", "mlruns/evidence/*.zip")
COMMIT = "COMMIT"  # file of a wheel and of a source distribution, which have no history


def find_shipped() -> list[str]:
    """Return the files that are shipped, by their places in the checkout."""
    return sorted(str(path) for pattern in SHIPPED for path in Path().glob(pattern))


def find_commit() -> str:
    """Return the commit, which ends in `+changes` where files differ; empty if none is known."""
    if Path(COMMIT).exists():
        return Path(COMMIT).read_text()
    if not Path(".git").exists() or not shutil.which("git"):
        return ""
    words = ("git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes")
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


class BuildPackages(build_py):
    """Copies what is shipped into the package, where pipelines/runtime/places.py finds it."""

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *find_shipped()]

    def run(self) -> None:
        super().run()
        folder = Path(self.build_lib, "pipelines", "shipped")
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier build
        for name in () if self.editable_mode else find_shipped():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, folder / name)
            (folder / COMMIT).write_text(find_commit())


class MakeSource(sdist):
    """Writes the commit into a source distribution."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        Path(base_dir, COMMIT).write_text(find_commit())


setup(cmdclass={"build_py": BuildPackages, "sdist": MakeSource})
