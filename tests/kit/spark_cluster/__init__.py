"""A Spark standalone cluster on this machine, whose executors cannot see the repository.

packing     the project's wheels and their dependencies ──▶ environment.tar.gz
standalone  a master and two workers, as processes that end with the block
submitting  `spark-submit` with the archive; finding and ending an executor's process
programs    the programs that are submitted
"""
