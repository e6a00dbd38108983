"""The rules: a code, a sentence, the evidence it needs, the advice."""
