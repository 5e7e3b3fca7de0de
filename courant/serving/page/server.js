/* Asks the server; an answer that is none is an Error with the server's own words. */

export async function ask(route, body, headers = {}) {
  const options = body === undefined ? { headers } : {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  };
  const response = await fetch(route, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail || `the server answered ${response.status}`);
  return answer;
}
