#include "models/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/files/file.h"
#include "data/weights/llm_c_file.h"
#include "data/weights/torch_file.h"
#include "models/presets.h"

namespace spillway::models {
namespace {

// The models of torchvision that this program has under the same names, with the names of
// the tensors whose shapes give the numbers of channels (`first`) and classes (`last`).
struct TorchvisionModel {
  std::string_view name;
  const char *first, *last;
};
constexpr std::array<TorchvisionModel, 5> kTorchvision{{{"resnet18", "conv1.weight", "fc.bias"},
                                                        {"resnet34", "conv1.weight", "fc.bias"},
                                                        {"resnet50", "conv1.weight", "fc.bias"},
                                                        {"alexnet", "features.0.weight", "classifier.6.bias"},
                                                        {"vgg11", "features.0.weight", "classifier.6.bias"}}};

constexpr i64 kMostClasses = i64{1} << 24;  // more classes than any data set has; the product with the last layer's width fits into 64 bits

std::string torchvision_names() {
  std::vector<std::string_view> names;
  for (const TorchvisionModel& model : kTorchvision) names.push_back(model.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

[[noreturn]] void reject_import(const std::filesystem::path& file, const std::string& why) {
  throw Error(ErrorCode::data, fmt::format("[import] {}: {}", file.string(), why));
}

// GPT-2's published vocabulary ends with <|endoftext|>, which serves as begin and end token.
ModelConfig gpt2_of(const data::LlmCHeader& header) {
  ModelConfig config = preset("gpt2-124m");
  config.layers = header.layers;
  config.width = header.width;
  config.heads = config.kv_heads = header.heads;
  config.head_dim = header.width / header.heads;
  config.mlp_width = 4 * header.width;
  config.positions = header.positions;
  if (config.vocabulary != header.vocabulary) config.begin_token.reset(), config.end_tokens.clear();
  config.vocabulary = header.vocabulary;
  return config;
}

i64 extent_of(const data::TorchFile& file, const std::filesystem::path& path, const char* name, int rank, int axis, std::string_view as) {
  const data::TensorInfo* tensor = file.find(name);
  if (!tensor || !tensor->foreign.empty() || tensor->shape.rank() != rank) {
    reject_import(
        path,
        fmt::format("expected a tensor {} of {} dimensions, as in torchvision's {}, got {}: save the model's state_dict() with torch.save",
                    name, rank, as, tensor ? to_string(tensor->shape) : "none"));
  }
  return tensor->shape[axis];
}

ModelConfig torchvision_model(const std::filesystem::path& path, const std::string& as) {
  const auto* known = std::ranges::find(kTorchvision, as, &TorchvisionModel::name);
  if (known == kTorchvision.end())
    throw Error(ErrorCode::usage, fmt::format("[--as] expected the name of a torchvision model ({}), got `{}`", torchvision_names(), as));
  const data::TorchFile file(path);
  ModelConfig config = preset(as);
  const i64 channels = extent_of(file, path, known->first, 4, 1, as);
  if (channels != 1 && channels != 3)
    reject_import(path, fmt::format("expected {} to be for images of 1 or 3 channels, got {} channels", known->first, channels));
  config.image_CHW.set(0, channels);
  config.vocabulary = extent_of(file, path, known->last, 1, 0, as);
  if (config.vocabulary < 1 || config.vocabulary > kMostClasses)
    reject_import(
        path, fmt::format("expected from 1 to {} classes, got a tensor {} of {} elements", kMostClasses, known->last, config.vocabulary));
  return config;
}

// Returns whether torch.save of PyTorch before 1.6 wrote the file: a sequence of pickles, the first of which is a magic number.
bool is_old_torch_file(const std::filesystem::path& path) { return data::beginning_of(path, 4) == "\x80\x02\x8a\x0a"; }

}  // namespace

ImportedModel imported_model(const std::filesystem::path& file, const std::optional<std::string>& as) {
  if (!std::filesystem::is_regular_file(file))
    throw Error(ErrorCode::usage, fmt::format("[import] expected a file, got {}, which is not a regular file", file.string()));
  if (data::is_llm_c_file(file)) {
    if (as)
      throw Error(ErrorCode::usage, "[--as] expected no --as for a file of llm.c, because the file itself names its model: leave --as out");
    return {gpt2_of(data::LlmCFile(file).header()), "llm.c's GPT-2"};
  }
  if (data::is_torch_file(file)) {
    if (!as) {
      throw Error(ErrorCode::usage, fmt::format("[import] expected --as NAME for {}, because the file does not name the torchvision model "
                                                "whose weights it holds: NAME is one of {}",
                                                file.string(), torchvision_names()));
    }
    return {torchvision_model(file, *as), "torchvision's " + *as};
  }
  if (is_old_torch_file(file)) {
    reject_import(file,
                  "expected the torch.save format of PyTorch 1.6 or newer, got the older one: convert the file in Python with "
                  "torch.save(torch.load(FILE, weights_only=True), NEW)");
  }
  reject_import(file,
                "expected a model file of llm.c (the number 20240326 at its beginning) or a file that torch.save wrote (a zip archive), "
                "got neither; a Hugging Face folder needs no import: pass it as --model");
}

}  // namespace spillway::models
