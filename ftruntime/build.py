"""Compile the core: ``python -m ftruntime.build FOLDER`` (``compiled.py`` says how it is used).

It takes mypy, which the ``dev`` extra brings, a C compiler and the headers of this Python.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from .compiled import CORE, LIBRARY, ROOT, STAMP, VARIABLE, fingerprint

# Types that the core does not lean on are not looked into: torch alone would take a minute.
MYPY = """\
[mypy]
follow_imports = silent

[mypy-faker.*,hypothesis.*,numpy.*,rich.*,torch.*]
follow_imports = skip
"""


def build(folder: Path, opt_level: str = "3") -> None:
    """Compile the modules of ``CORE`` into ``folder``. Exits with mypy's word if they do not pass it.

    Raises ImportError without mypyc or setuptools, setuptools' CompileError without a compiler.
    """
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    folder = folder.resolve()
    stamp = folder / STAMP
    stamp.unlink(missing_ok=True)
    sources = fingerprint()
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(ROOT):
        config = Path(temporary, "mypy.ini")
        config.write_text(MYPY, encoding="ascii")
        options = [f"--config-file={config}", f"--cache-dir={temporary}/mypy"]
        files = [name.replace(".", "/") + ".py" for name in CORE]
        extensions = mypycify(
            [*options, *files], opt_level=opt_level, target_dir=f"{temporary}/c", group_name=LIBRARY
        )
        for extension in extensions:  # some processors fuse a * b + c, and round it otherwise than Python
            extension.extra_compile_args.append("-ffp-contract=off")
        command = build_ext(Distribution({"name": "fthsdp", "ext_modules": extensions}))
        command.build_lib, command.build_temp = str(folder), f"{temporary}/objects"
        command.ensure_finalized()
        command.run()
    stamp.write_text(sources, encoding="ascii")


def main() -> None:
    """The command line: builds, and says how to use it."""
    parser = argparse.ArgumentParser(prog="python -m ftruntime.build", description="Compile the core.")
    parser.add_argument("folder", type=Path, help="where to, for example build/compiled")
    parser.add_argument("--opt-level", default="3", choices="0123", help="of the C compiler (default: 3)")
    options = parser.parse_args()
    try:
        build(options.folder, options.opt_level)
    except ImportError as error:
        sys.exit(f"{error}: pip install -c constraints.txt -e '.[dev]' brings it")
    print(f"{VARIABLE}={options.folder} uses it")


if __name__ == "__main__":
    main()
