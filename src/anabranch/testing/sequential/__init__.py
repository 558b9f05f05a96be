"""The pieces of the oracle: one rule of the meaning after another, a record at a time.

Short, slow, obviously right. Nothing here is used by any runtime, and nothing of a runtime is used
here: these modules import what a program is, and how it is judged is their own.
"""
