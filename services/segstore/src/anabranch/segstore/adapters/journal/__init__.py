"""The journal: all containers' logs of one process in one sequence of files.

layout     names in the directory; format, identity, fences, list of logs
recovery   opening: fence, make durable, scan, chain
files      writing: the present file, rolling to the next, the spare
journal    the ports `DurableDataLog` and `ContainerLog`: group commit, replay, release
local      opening it on a directory of this machine
inspection reading it without opening it
mending    repairing it, when it is damaged
"""
