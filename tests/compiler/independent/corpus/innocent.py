"""A source that others pretend to be: the lines of `tidy` are pointed at by a function that is not it."""


def tidy(r):
    r["name"] = r["name"].strip()
    return r
