#include "models/folder_model.h"

#include <fmt/format.h>

#include "models/weights.h"

namespace spillway::models {
namespace {

std::string embedding_name(const ModelConfig& config, const data::WeightFolder& tensors) {
  const std::string whole = config.family == Family::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
  return tensors.find(whole) != nullptr ? whole : whole.substr(whole.find('.') + 1);
}

void settle_head(const std::filesystem::path& folder, const data::WeightFolder& tensors, FolderModel& model) {
  const std::string embedding = embedding_name(model.config, tensors);
  if (!model.config.tied_head || tensors.find(kHeadName) == nullptr) return;
  if (tensors.find(embedding) == nullptr) {
    model.notes.push_back(fmt::format("{} has no {}: its {} is used as the tied embedding", folder.string(), embedding, kHeadName));
  } else if (!holds_equal(tensors, embedding, kHeadName)) {
    model.config.tied_head = false;
    model.notes.push_back(
        fmt::format("config.json sets tie_word_embeddings, but {} and {} are both in {} with different values: the head is loaded untied, "
                    "as transformers does; to silence this note, set \"tie_word_embeddings\": false in config.json",
                    embedding, kHeadName, folder.string()));
  }
}

}  // namespace

FolderModel read_folder_model(const std::filesystem::path& folder) {
  FolderModel model{read_config(folder), {}};
  if (!data::has_weights(folder)) return model;
  const data::WeightFolder tensors(folder);
  if (std::string note = tensors.wrappers_note(); !note.empty()) model.notes.push_back(std::move(note));
  if (model.config.reads_images()) return model;
  settle_head(folder, tensors, model);
  if (std::string note = left_out_note(folder, tensors.names()); !note.empty()) model.notes.push_back(std::move(note));
  return model;
}

}  // namespace spillway::models
