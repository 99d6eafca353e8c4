// Implements `spillway generate`, which continues text with a model folder, a run or a checkpoint, under the
// same budgets and placements as training. The answer to a single prompt is printed while it is generated.
// The prompts of a file are answered several at a time, with one line of JSON each. The first rank prints.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/ranks/rank_console.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "models/lora.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/ranks/rank_report.h"
#include "trainer/run/prompts.h"
#include "trainer/run/writer.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

// Formats an answer as a line of JSON. If there are several adapters, `adapter` names the one that answered.
std::string line_of(const Prompt& prompt, const Answer& answer, const std::string& adapter) {
  Json all = {{"prompt", prompt.text}, {"text", answer.text}, {"tokens", answer.tokens}};
  if (!adapter.empty()) all["adapter"] = adapter;
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

PromptFile prompts_of(const GenerateConfig& config, const Writer& writer) {
  if (config.prompts) return read_prompts(*config.prompts, config, writer.source(), writer.shared_tokenizer());
  std::vector<i32> tokens = data::encode_with_around(writer.tokenizer(), *config.prompt);
  check_prompt(tokens, writer.source().config.vocabulary);
  return {{{*config.prompt, std::move(tokens)}}, {}};
}

// Returns a checksum of the prompts. Ranks compare it, because ranks on other nodes may have another file under the same name.
u32 checksum(const std::vector<Prompt>& prompts) {
  std::vector<i32> all;
  for (const Prompt& prompt : prompts) {
    all.push_back(static_cast<i32>(prompt.tokens.size()));
    all.insert(all.end(), prompt.tokens.begin(), prompt.tokens.end());
  }
  return crc32c(std::as_bytes(std::span(all)));
}

void write_one(Writer& writer, const Prompt& prompt, const std::string& adapter, Console& console) {
  if (!console.json() && !adapter.empty()) console.stream(adapter + ":\n");
  if (!console.json()) console.stream(prompt.text);
  const auto answers = writer.write({prompt.tokens}, 0, [&](size_t, const std::string& piece) {
    if (!console.json()) console.stream(piece);
  });
  if (console.json()) return console.result(line_of(prompt, answers.front(), adapter));
  console.stream("\n");
}

void write_all(Writer& writer, const std::vector<Prompt>& prompts, i64 rows, const std::string& adapter, Console& console) {
  const i64 count = std::ssize(prompts);
  for (i64 first = 0; first < count; first += rows) {
    const auto batch = std::span(prompts).subspan(static_cast<size_t>(first), static_cast<size_t>(std::min(rows, count - first)));
    std::vector<std::vector<i32>> tokens;
    for (const Prompt& prompt : batch) tokens.push_back(prompt.tokens);
    const auto answers = writer.write(tokens, first, [](size_t, const std::string&) {});
    for (size_t i = 0; i < batch.size(); ++i) console.result(line_of(batch[i], answers[i], adapter));
    console.passing(fmt::format("{} of {} prompts", first + std::ssize(batch), count));
  }
}

void generate(const GenerateConfig& config, const std::string& adapter, Console& console, const Peers& peers) {
  std::optional<Writer> writer;
  PromptFile file;
  peers.together([&] {
    writer.emplace(Command::generate, config, peers);
    file = prompts_of(config, *writer);
  });
  const std::vector<Prompt>& prompts = file.prompts;
  const auto longest = std::ranges::max(prompts, {}, [](const Prompt& p) { return p.tokens.size(); }).tokens.size();
  const i64 rows = config.prompts ? std::min(config.batch_size, std::ssize(prompts)) : 1;
  const Facts facts{{"tokens of the prompts", fmt::format("{:08x}", checksum(prompts))}};
  writer->open(config, facts, rows, text_lengths(static_cast<i64>(longest), config.max_tokens, writer->source().config.positions), console);
  report_phase(RankPhase::generating);
  for (const std::string& note : file.notes) console.log("prompts: " + note);
  if (config.prompts) {
    write_all(*writer, prompts, rows, adapter, console);
  } else {
    write_one(*writer, prompts.front(), adapter, console);
  }
}

// Answers the prompts with one adapter after the other. The model is loaded anew for each, since adapters may have different ranks and
// target layers.
int generate_with_each(const GenerateConfig& config, Console& console, const Peers& peers) {
  peers.together([&] {
    for (const std::string& folder : config.adapters) models::read_adapter_config(folder);
  });
  if (config.adapters.empty()) generate(config, "", console, peers);
  for (const std::string& folder : config.adapters) {
    GenerateConfig one = config;
    one.adapter = folder;
    generate(one, config.adapters.size() > 1 ? folder : "", console, peers);
  }
  return 0;
}

}  // namespace

int run_generate(const GenerateConfig& given, Console& console, const Peers& peers) {
  GenerateConfig config = given;
  config.ranks = peers.ranks();
  resolve_device(config, look_at_gpus(config, peers.place().local_rank));
  return run_on_ranks(peers, console, [&](Console& own) { return generate_with_each(config, own, peers); });
}

}  // namespace spillway::app
