/* Asks the server for an object or a file; an answer that is none is an Error with the server's own words. */

export async function ask(route, body, headers = {}) {
  const options = body === undefined ? { headers } : {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  };
  const response = await fetch(route, options).catch(() => {
    throw new Error("the server does not answer: start courant explore again on this port, then move a slider");
  });
  if (response.headers.get("content-type") === "application/octet-stream") {
    return response.blob().catch(() => { throw new Error("the file did not come whole: try again"); });
  }
  const answer = await response.json().catch(() => ({})); // a busy server answers without JSON
  if (!response.ok) throw new Error(answer.detail || `the server answered with status ${response.status}; try again`);
  return answer;
}
