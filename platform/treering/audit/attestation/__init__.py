"""Signed statements about checkpoints: what was trained on which data, in a form that other tools can check.

An in-toto Statement in a DSSE envelope, signed with an ed25519 key. The audit finds what is true, this binds it to a
key and to a time; whoever rewrites the evidence afterwards no longer fits it.
"""
