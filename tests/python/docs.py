"""docs.py FILE...: the Python blocks of documents run. A block in which lines begin with >>> is compared with what it shows ("..." for anything); others
only run. The blocks of one file share their names, in order, and a folder of their own."""
import doctest
import os
import pathlib
import re
import sys
import tempfile

failed = count = 0
for path in sys.argv[1:]:
    text = pathlib.Path(path).read_text()
    names = {"__name__": "__docs__"}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(home, "examples"), os.path.join(folder, "examples"))
        os.chdir(folder)
        for block in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
            code, line = block[1], text[:block.start()].count("\n") + 1
            count += 1
            if ">>>" in code:
                test = doctest.DocTestParser().get_doctest(code, names, path, path, line)
                failed += runner.run(test, clear_globs=False).failed
                names.update(test.globs)
            else:
                try:
                    exec(compile("\n" * line + code, path, "exec"), names)
                except Exception as e:
                    print(f"{path}:{line}: {type(e).__name__}: {e}")
                    failed += 1
        os.chdir(home)
print(f"{count} blocks, {failed} failures")
sys.exit(bool(failed) or not count)
