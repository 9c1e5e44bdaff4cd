"""The command `anabranch doctor`: checks with a verdict and a remedy each.

    checks ──▶ sources (gather facts; each is asked once) ──▶ the cluster and this machine
       └─────▶ decisions (pure: facts in, finding out)

`checks` is the table of all checks: one row has a name, a line about it, its source, and its
decision. `examination` performs the rows one after the other, each with a deadline; nothing that a
row raises takes another one down.
"""
