"""Fuzzing of everything that reads foreign bytes: only MemauditError may come out."""
