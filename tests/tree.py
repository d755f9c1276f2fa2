"""The files of this tree: what git tracks or does not ignore, or, where git cannot say, all of
them but build/."""
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def git(*arguments):
    """What git prints, as bytes; None where there is no git or no history."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def files():
    listed = git("ls-files", "-z", "-co", "--exclude-standard")
    if listed is not None:
        names = listed.decode().split("\0")
    else:
        names = [os.path.relpath(os.path.join(d, f), ROOT) for d, _, found in os.walk(ROOT)
                 for f in found]
        names = [n for n in names if not n.startswith(("build/", ".git/"))
                 and "__pycache__" not in n]
    return sorted(n for n in names if n and os.path.isfile(os.path.join(ROOT, n)))
