"""Chat targets: a turn of a model at an OpenAI-compatible endpoint.

target      the fields of a target, validated
keys        the operator's API keys, and the hosts that may get them
ports       what a turn needs of the rest of Wakeful: tools, history, time zone
prompt      what is said to the model
request     the body of a request, within the context window
response    what an endpoint answered, in each of the forms that endpoints use
failures    what an error of an endpoint means for the attempt
spending    tokens and cost
endpoint    the HTTP client
launcher    the loop of requests and tool calls
"""
