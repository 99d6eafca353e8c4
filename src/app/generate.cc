// spillway generate: text from a model folder, a run or a checkpoint, under the same budgets and placements as training.
#include <fmt/format.h>
#include <unistd.h>

#include "app/commands.h"
#include "app/generation.h"
#include "app/session.h"
#include "base/error.h"
#include "data/tokenizer.h"
#include "models/weights.h"

namespace spillway::app {

int run_generate(const GenerateConfig& config, Console& console) {
  ModelSource source = find_trained_model(config.model, config.checkpoint);
  if (!source.has_weights) {
    throw Error(
        ErrorCode::usage,
        fmt::format("[generate] {} has no weights: give a run folder, a checkpoint or a folder with model.safetensors", config.model));
  }
  const data::ByteTokenizer tokenizer;
  const std::vector<i32> prompt = tokenizer.encode(config.prompt);
  for (i32 id : prompt) {
    if (id < source.config.vocabulary) continue;
    throw Error(ErrorCode::usage,
                fmt::format("[generate] the prompt's byte {} is beyond the model's vocabulary of {}", id, source.config.vocabulary));
  }
  const i64 T = std::min<i64>(source.config.positions, static_cast<i64>(prompt.size()) + config.max_tokens);
  Session session(config, std::move(source), fmt::format("generate-{}", ::getpid()));
  const PlanWishes wishes{.parameters = config.place_parameters,
                          .gradients = PlacementWish::whole(Tier::device),
                          .optimizer = PlacementWish::whole(Tier::device),
                          .prefetch = config.prefetch};
  session.plan(wishes, false, 1, 1, std::max<i64>(1, T));
  session.open();
  const models::FolderWeights weights(session.model(), *session.source().folder);
  session.rank().load([&](const nn::Parameter& p, i64 begin, std::span<double> out) { weights.read(p, begin, out); });
  console.stream(config.prompt);
  const Sampling sampling{config.temperature, config.top_k, config.top_p, config.seed};
  generate_tokens(session.rank(), prompt, config.max_tokens, sampling, [&](i32 id) {
    console.stream(tokenizer.decode(std::span(&id, 1)));
    return true;
  });
  console.stream("\n");
  return 0;
}

}  // namespace spillway::app
