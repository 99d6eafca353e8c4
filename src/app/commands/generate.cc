// spillway generate: text from a model folder, a run or a checkpoint, under the same budgets and placements as training. All ranks compute
// the same tokens, each with its part of the weights; the first one prints them.
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/ranks/device_choice.h"
#include "app/ranks/rank_report.h"
#include "app/run/generation.h"
#include "app/run/inference.h"
#include "app/run/run_on_ranks.h"
#include "base/error.h"
#include "data/tokenizer.h"

namespace spillway::app {
namespace {

int generate(const GenerateConfig& config, Console& console, const Peers& peers) {
  const data::ByteTokenizer tokenizer;
  const std::vector<i32> prompt = tokenizer.encode(config.prompt);
  std::optional<Inference> model;
  Workload work{.mode = nn::Mode::generate};
  peers.together([&] {
    model.emplace(Command::generate, config, peers);
    if (model->source().config.reads_images())
      throw Error(ErrorCode::usage, "[generate] expected a language model, got " + model->source().name + ", which reads images");
    check_prompt(prompt, model->source().config.vocabulary);
    work.sequence_length = std::min<i64>(model->source().config.positions, static_cast<i64>(prompt.size()) + config.max_tokens);
  });
  model->open(config, {}, work, console);
  report_phase(RankPhase::generating);
  std::string text;
  nlohmann::ordered_json ids = nlohmann::ordered_json::array();
  if (!console.json()) console.stream(config.prompt);
  const Sampling sampling{config.temperature, config.top_k, config.top_p, config.seed};
  generate_tokens(model->rank(), prompt, config.max_tokens, sampling, [&](i32 id) {
    const std::string piece = tokenizer.decode(std::span(&id, 1));
    if (!console.json()) console.stream(piece);
    text += piece;
    ids.push_back(id);
    return true;
  });
  if (console.json()) {
    const nlohmann::ordered_json all = {{"prompt", config.prompt}, {"text", text}, {"tokens", ids}};
    console.result(all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    console.stream("\n");
  }
  return 0;
}

}  // namespace

int run_generate(const GenerateConfig& given, Console& console, const Peers& peers) {
  GenerateConfig config = given;
  config.ranks = peers.ranks();
  resolve_device(config, look_at_gpus(config, peers.place().local_rank));
  return run_on_ranks(peers, console, [&](Console& own) { return generate(config, own, peers); });
}

}  // namespace spillway::app
