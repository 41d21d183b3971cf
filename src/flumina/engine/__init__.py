"""How a plan runs in processes: tasks, their connections, what they read and what they write. No pyspark."""
