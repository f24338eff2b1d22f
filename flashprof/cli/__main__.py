"""`python -m flashprof.cli`, for a source tree that is not installed."""

from flashprof.cli.main import main

if __name__ == "__main__":
    main()
