"""Administration: audit, quotas, workflows, budgets, alerts, status."""
