#include "models/folder_model.h"

#include <fmt/format.h>

#include "models/weights.h"

namespace spillway::models {
namespace {

// Returns the first of the names that the folder has, or the last.
std::string first_found(const data::WeightFolder& tensors, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (tensors.find(name) != nullptr) return name;
  }
  return *std::prev(names.end());
}

std::string embedding_name(const ModelConfig& config, const data::WeightFolder& tensors) {
  if (config.family == Family::gpt2) return first_found(tensors, {"transformer.wte.weight", "wte.weight"});
  return first_found(tensors, {"model.embed_tokens.weight", "model.language_model.embed_tokens.weight",
                               "language_model.model.embed_tokens.weight", "embed_tokens.weight"});
}

void settle_head(const std::filesystem::path& folder, const data::WeightFolder& tensors, FolderModel& model) {
  const std::string embedding = embedding_name(model.config, tensors);
  const std::string head = first_found(tensors, {"language_model.lm_head.weight", kHeadName});
  if (!model.config.tied_head || tensors.find(head) == nullptr) return;
  if (tensors.find(embedding) == nullptr) {
    model.notes.push_back(fmt::format("{} has no {}: its {} is used as the tied embedding", folder.string(), embedding, head));
  } else if (!holds_equal(tensors, embedding, head)) {
    model.config.tied_head = false;
    model.notes.push_back(
        fmt::format("config.json sets tie_word_embeddings, but {} and {} are both in {} with different values: the head is loaded untied, "
                    "as transformers does; to silence this note, set \"tie_word_embeddings\": false in config.json",
                    embedding, head, folder.string()));
  }
}

}  // namespace

FolderModel read_folder_model(const std::filesystem::path& folder) {
  FolderModel model{read_config(folder), type_of_whole(folder), {}};
  if (!model.whole.empty()) {
    model.notes.push_back(
        fmt::format("{} holds a {}, a model of several parts; its language model alone is read and trained", folder.string(), model.whole));
  }
  if (!data::has_weights(folder)) return model;
  const data::WeightFolder tensors(folder);
  if (std::string note = tensors.wrappers_note(); !note.empty()) model.notes.push_back(std::move(note));
  if (model.config.reads_images()) return model;
  settle_head(folder, tensors, model);
  if (!model.whole.empty()) return model;
  if (std::string note = left_out_note(folder, tensors.names()); !note.empty()) model.notes.push_back(std::move(note));
  return model;
}

}  // namespace spillway::models
