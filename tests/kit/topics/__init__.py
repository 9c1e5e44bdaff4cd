"""A simulation of controllers of topics: lagging watches, lost answers, deaths, churn of SPUs."""
