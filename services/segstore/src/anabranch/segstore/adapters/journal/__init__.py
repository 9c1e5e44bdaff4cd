"""The journal: all containers' logs of one process in one sequence of files.

layout        names in the directory; format, identity, fences, list of logs
recovery      opening: fence, make durable, scan, chain
files         writing: the present file, rolling to the next, the spare
live          which files there are, what is in them, what pins them
journal       the ports `DurableDataLog` and `ContainerLog`: logs, replay, release
view          one container's part of it
group_commit  frames to the disk: gather, write, look at the fence, tell
ownership     the fence, and the end after an error
local         opening it on a directory of this machine
inspection    reading it without opening it
mending       repairing it, when it is damaged
"""
