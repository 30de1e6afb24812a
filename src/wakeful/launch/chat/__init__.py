"""Chat targets: a turn of a model at an OpenAI-compatible endpoint.

target      the fields of a target, validated
request     what is said to the model, within the context window, and what that needs of the rest of Wakeful
response    what an endpoint answered, in each of the forms that endpoints use; tokens and cost
endpoint    the HTTP client, the API keys and the hosts that may get them, what an error means for the attempt
launcher    the loop of requests and tool calls
"""
