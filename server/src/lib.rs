//! tegula-server: the HTTP edge of the engine, with the endpoints of OpenAI's API and the names of vLLM.
