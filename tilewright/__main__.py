"""`python -m tilewright` is `tilewright`."""

from tilewright.cli import app

if __name__ == "__main__":
    app(prog_name="tilewright")
