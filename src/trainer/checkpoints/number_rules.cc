#include "trainer/checkpoints/number_rules.h"

#include <fmt/format.h>

#include "trainer/checkpoints/deepspeed_state.h"

namespace spillway::trainer {
namespace {

bool trains_embedding(const nn::Sequential& model) { return !model.parameters.front()->frozen; }

}  // namespace

void keep_tied_head(const std::filesystem::path& checkpoint, const Progress& progress, ModelSource& source) {
  if (progress.rules >= kNumberRules || source.config.tied_head || source.config.lora || is_deepspeed_checkpoint(checkpoint)) return;
  if (!models::read_config(checkpoint).tied_head) return;
  source.config.tied_head = true;
  source.notes.emplace_back("the run was started by an older program, which tied the output head to the embedding: the head stays tied");
}

std::vector<std::string> model_notes(const ModelSource& source, const nn::Sequential& model) {
  std::vector<std::string> notes = source.notes;
  if (source.config.padding_row && trains_embedding(model))
    notes.push_back(fmt::format("row {} of the embedding (pad_token_id) gets no gradient from the inputs, as in transformers",
                                *source.config.padding_row));
  return notes;
}

std::vector<std::string> changed_rules(const Progress& progress, const ModelSource& source, const nn::Sequential& model) {
  std::vector<std::string> changes;
  if (progress.step == 0 || progress.rules >= kNumberRules) return changes;
  const models::ModelConfig& config = source.config;
  if (config.padding_row && trains_embedding(model))
    changes.push_back(fmt::format("row {} of the embedding (pad_token_id) gets no gradient from the inputs", *config.padding_row));
  if (config.experts && config.experts->evened_out) changes.emplace_back("the router loss leaves padding out");
  if (config.lora && !config.tied_head && models::read_config(*source.folder).tied_head)
    changes.emplace_back("the base model uses its own output head, as stored in its folder");
  return changes;
}

}  // namespace spillway::trainer
