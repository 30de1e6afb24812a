"""What the workloads stand on: fresh databases, and bare SQL to be measured against."""
