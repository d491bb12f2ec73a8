//! docs/perf/serving.md

use std::fmt::Write;

use super::{ANSWER, ROUNDS, Results};

pub fn text(results: &Results) -> String {
    let mut text = format!(
        "# Serving, beside llama.cpp\n\n\
         Written by `./x bench serving`, of docs/perf/serving.json. Both servers have the same file ({}), {} threads of\n\
         {}, and the same client (`tegula bench serve`): 1, 4 or 16 clients, each with one request after the other;\n\
         prompts of 128 or 1,024 tokens, all different or with the first seven eighths in common; {ANSWER} tokens of each\n\
         answer, greedy. They run in turn, {ROUNDS} rounds with prompts of their own each, so that no round finds another's\n\
         in a cache. Figures are medians of the rounds, ratios medians of the rounds' ratios. Tokens per second are those of\n\
         prompts and answers together; the time to the first token is the median of a round's requests.\n\n\
         ![tokens per second and time to the first token](serving.svg)\n\n\
         | clients | prompt | | tokens/s | llama.cpp | ratio | first token | llama.cpp | ratio | each further token | llama.cpp |\n\
         | --: | --: | :-- | --: | --: | --: | --: | --: | --: | --: | --: |\n",
        results.model, results.threads, results.processor
    );
    for pair in &results.pairs {
        let load = pair.load;
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.0} | **{:.2}** | {:.0} ms | {:.0} ms | {:.2} | {:.1} ms | {:.1} ms |",
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
        );
    }
    let _ = writeln!(
        text,
        "\nTegula's server is as it is without options. The peer is llama.cpp's server, {}, compiled for this\nmachine, with \
         a slot for each client and its prompts' cache on; its options, by the number of clients:\n\n```",
        results.peer
    );
    for (clients, options) in &results.options {
        let _ = writeln!(text, "{clients:>2}: {options}");
    }
    text + "```\n"
}
