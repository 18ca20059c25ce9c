"""The programs: one page each. They read options, call the library, and print."""

if __name__ != "latentheads.experiments":  # two names would make two classes of each
    raise ImportError(f"write latentheads.{__name__} for {__name__}: a class has one module")
