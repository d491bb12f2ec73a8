//! docs/perf/serving.md

use std::fmt::Write;

use super::{ANSWER, ROUNDS, Results};

pub fn text(results: &Results) -> String {
    let mut text = format!(
        "# Serving, beside llama.cpp\n\n\
         Written by `./x bench serving`, of docs/perf/serving.json. Both servers have the same file,\n{},\n{} threads of\n{},\n\
         and the same client (`tegula bench serve`): 1, 4 or 16 clients, each with one request after the other;\n\
         prompts of 128 or 1,024 tokens, all different or with the first seven eighths in common; {ANSWER} tokens of each\n\
         answer, greedy. They run in turn, in rounds ({ROUNDS} of each load unless fewer were asked for) with prompts of their\n\
         own each, so that no round finds another's in a cache: what is shared is computed within a round, and counts.\n\
         Figures are medians of the rounds, ratios medians of the rounds' ratios. Tokens per second are those of prompts and\n\
         answers together; the time to the first token is the median of a round's requests.\n\n\
         ![tokens per second and time to the first token](serving.svg)\n\n\
         | clients | prompt | | tokens/s | llama.cpp | ratio | first token | llama.cpp | ratio | each further token | llama.cpp | rounds |\n\
         | --: | --: | :-- | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n",
        results.model, results.threads, results.processor
    );
    for pair in &results.pairs {
        let load = pair.load;
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.0} | **{:.2}** | {:.0} ms | {:.0} ms | {:.2} | {:.1} ms | {:.1} ms | {} |",
            load.clients,
            load.prompt,
            if load.shared { "shared" } else { "" },
            pair.ours(|r| r.total),
            pair.theirs(|r| r.total),
            pair.ratio(|r| r.total),
            pair.ours(|r| r.ttft),
            pair.theirs(|r| r.ttft),
            pair.ratio(|r| r.ttft),
            pair.ours(|r| r.tpot),
            pair.theirs(|r| r.tpot),
            pair.rounds.len(),
        );
    }
    let _ = writeln!(
        text,
        "\nTegula's server is as it is without options. The peer is llama.cpp's server,\n{},\ncompiled for this machine, with \
         a slot for each client and its prompts' cache on; its options, by the number of clients:\n\n```",
        results.peer
    );
    for (clients, options) in &results.options {
        let _ = writeln!(text, "{clients:>2}: {options}");
    }
    text + "```\n"
}
