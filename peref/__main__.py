"""`python -m peref` is the command `peref`."""

if __name__ == "__main__":
    from peref.cli import main

    main()
