// Forms that are signed with a passkey (WebAuthn): `data-passkey` says whether one is created or used.
"use strict";
(() => {
  const decode = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const encode = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const withIds = (list) => list.map((item) => ({ ...item, id: decode(item.id) }));

  async function create(options, name) {
    const made = await navigator.credentials.create({
      publicKey: {
        ...options,
        challenge: decode(options.challenge),
        user: { id: decode(options.user.id), name, displayName: name },
        excludeCredentials: withIds(options.excludeCredentials),
      },
    });
    const { clientDataJSON, attestationObject } = made.response;
    const response = { clientDataJSON: encode(clientDataJSON), attestationObject: encode(attestationObject) };
    return { id: made.id, rawId: encode(made.rawId), type: made.type, response };
  }

  async function sign(options) {
    const { id, response } = await navigator.credentials.get({
      publicKey: { ...options, challenge: decode(options.challenge), allowCredentials: withIds(options.allowCredentials) },
    });
    return {
      id,
      authenticatorData: encode(response.authenticatorData),
      clientData: encode(response.clientDataJSON),
      signature: encode(response.signature),
    };
  }

  // What is signed depends on what was typed, so the server says what the challenge is.
  async function fetchOptions(form, action) {
    const fields = new URLSearchParams(new FormData(form));
    fields.set("decision", new URL(action).pathname.split("/").pop());
    const answer = await fetch(form.dataset.challenge, { method: "POST", body: fields });
    return answer.ok ? answer.json() : null;
  }

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.dataset.passkey) return;
    event.preventDefault();
    const problem = form.querySelector("[data-problem]");
    const action = event.submitter?.hasAttribute("formaction") ? event.submitter.formAction : form.action;
    problem.hidden = true;
    try {
      if (!window.PublicKeyCredential) throw new Error("this browser has no passkeys, or the page is neither on localhost nor over HTTPS");
      const options = form.dataset.challenge ? await fetchOptions(form, action) : JSON.parse(form.dataset.options);
      if (options) {
        const passkey = form.dataset.passkey === "create" ? await create(options, form.elements.person.value) : await sign(options);
        form.elements.passkey.value = JSON.stringify(passkey);
      }
      form.action = action;
      form.submit(); // without options too: the server then says what is wrong
    } catch (error) {
      problem.textContent = "Nothing was signed: " + error.message;
      problem.hidden = false;
    }
  });
})();
