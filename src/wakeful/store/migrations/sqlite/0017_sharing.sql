-- compatible: a new column.

-- What an executor says that the work of a claimed run waits for, such as a node of its cluster. Its timeout counts
-- from the end of that wait.
ALTER TABLE runs ADD COLUMN waiting TEXT;
