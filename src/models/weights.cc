#include "models/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/thread_pool.h"
#include "data/files/beside.h"
#include "data/safetensors/wide.h"
#include "data/weights/mxfp4.h"
#include "device/transfer.h"
#include "models/lora.h"

namespace spillway::models {
namespace {

using Names = std::vector<std::string>;

// Returns true for tensors that checkpoints may hold beside the parameters: constants (masks, rotary
// frequencies) that this program computes itself, and batch norm's counter of batches, which it does not use.
bool is_known_buffer(const std::string& name) {
  for (const char* end : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", ".num_batches_tracked"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

// Returns the base model's name for a parameter: the name without the part up to the first dot.
std::string bare(const std::string& parameter) { return parameter.substr(parameter.find('.') + 1); }

// Returns true if the parameter belongs to the base model and so has a name without prefix.
// For other parameters bare() would be wrong: "lm_head.weight" would become "weight".
bool has_bare_form(const std::string& parameter) { return parameter.starts_with("transformer.") || parameter.starts_with("model."); }

// The forms of a parameter's name where the language model is a part of a larger model: as transformers 5 saves it, whose head lies outside
// of the part, and as published before.
std::array<std::string, 2> names_in_a_whole(const std::string& parameter) {
  return {parameter.starts_with("model.") ? "model.language_model." + bare(parameter) : parameter, "language_model." + parameter};
}

constexpr std::string_view kTextPart = "language_model.";

std::string first_five(const Names& names) {
  const size_t shown = std::min<size_t>(5, names.size());
  const std::string rest = names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "), rest);
}

// Possible first parts of parameter names in language models. A base model's names lack this part.
constexpr std::string_view kModules[] = {"model", "transformer", "lm_head", "embed_tokens", "layers", "norm", "wte", "wpe", "h", "ln_f"};

bool is_of_no_module(const std::string& tensor) {
  return std::ranges::find(kModules, std::string_view(tensor).substr(0, tensor.find('.'))) == std::end(kModules);
}

// Returns the beginning of the names of a block's tensors, "model.layers.2.", if `tensor` is in a block, otherwise an empty text.
std::string_view block_of(std::string_view tensor) {
  constexpr std::string_view kBlocks = "layers.";
  const size_t at = tensor.find(kBlocks);
  if (at == tensor.npos || (at > 0 && tensor[at - 1] != '.')) return {};
  const size_t dot = tensor.find('.', at + kBlocks.size());
  return dot == tensor.npos ? std::string_view() : tensor.substr(0, dot + 1);
}

// Returns the beginnings of the names of blocks that predict tokens further ahead (multi-token prediction, arXiv:2412.19437, section 2.2),
// which have a projection eh_proj. DeepSeek-V3 and GLM-4.5 have them after the model's layers, and transformers does not read them.
std::set<std::string, std::less<>> multi_token_blocks(const auto& tensors) {
  std::set<std::string, std::less<>> blocks;
  for (const std::string& name : tensors) {
    if (name.ends_with(".eh_proj.weight") && !block_of(name).empty()) blocks.emplace(block_of(name));
  }
  return blocks;
}

// Returns whether the parameter is the embedding of a tied head.
bool is_tied(const nn::Sequential& model, const nn::Parameter& parameter) { return parameter.of_ids && model.uses(parameter.id) > 1; }

void refuse_if_any(const std::filesystem::path& folder, const char* what, const Names& names, const char* cure) {
  if (names.empty()) return;
  throw Error(ErrorCode::data, fmt::format("[weights] {}: {}: {}; {}", folder.string(), what, first_five(names), cure));
}

// Returns the shapes of the forms of the parameter that are parts of `tensor`, as text: "[8, 4, 6] or [8, 6, 4]".
std::string shapes_of(const nn::Parameter& parameter, const std::string& tensor) {
  Names shapes;
  for (const nn::StoredPart& part : parameter.stored) {
    if (part.tensor == tensor) shapes.push_back(to_string(part.shape));
  }
  return fmt::format("{}", fmt::join(shapes, " or "));
}

void require_range(const nn::Parameter& parameter, i64 begin, i64 count) {
  require(begin >= 0 && begin + count <= parameter.elems(), "[weights] expected a range inside the parameter");
}

void fill_units(const nn::Parameter& parameter, const WeightSource& source, const Tensor& units) {
  const auto read = [&](const nn::Parameter& p, i64 begin, std::span<double> out) { source.read(p, begin, out); };
  nn::quantized_values(parameter, read, 0, {units.raw(), static_cast<size_t>(units.bytes())});
}

void fill_one(const nn::Parameter& parameter, const WeightSource& source, const Tensor& into) {
  constexpr i64 kPiece = 1 << 18;  // the number of elements that are read at once
  if (!parameter.is_plain()) return fill_units(parameter, source, into);
  const i64 all = parameter.elems(), width = size_of(parameter.dtype);
  const auto fill_piece = [&](i64 piece, int) {
    const i64 begin = piece * kPiece, count = std::min(kPiece, all - begin);
    source.read_as(parameter, begin, parameter.dtype, {into.raw() + begin * width, static_cast<size_t>(count * width)});
  };
  ThreadPool* const threads = Stream::current().threads;
  threads ? threads->run(ceil_div(all, kPiece), fill_piece) : ThreadPool::run_in_place(ceil_div(all, kPiece), fill_piece);
}

}  // namespace

void WeightSource::read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const {
  data::read_narrowed([&](i64 at, std::span<double> wide) { read(parameter, begin + at, wide); }, dtype, out);
}

void ScratchWeights::read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const {
  nn::initial_values(parameter, seed_, begin, out);
}

bool holds_equal(const data::WeightFolder& tensors, const std::string& one, const std::string& other) {
  for (const std::string* name : {&one, &other}) {
    const data::TensorInfo* tensor = tensors.find(*name);
    if (tensor == nullptr || !tensor->foreign.empty() || !is_floating(tensor->dtype)) return false;
  }
  return tensors.equal(one, other);
}

std::string left_out_note(const std::filesystem::path& folder, const std::vector<std::string>& tensors) {
  Names names;
  const auto blocks = multi_token_blocks(tensors);
  std::ranges::copy_if(tensors, std::back_inserter(names), [&](const std::string& name) {
    return blocks.contains(block_of(name)) || (is_of_no_module(name) && !is_known_buffer(name));
  });
  if (names.empty()) return "";
  return fmt::format("{} holds tensors that do not belong to the language model; they are ignored: {}", folder.string(), first_five(names));
}

FolderWeights::FolderWeights(const nn::Sequential& model, const std::filesystem::path& folder) : tensors_(folder) {
  Names missing;
  std::set<std::string> left_over, wrong;  // many parameters may be parts of the same wrong tensor
  std::set<std::string> whole;             // the tensors that a parameter has under its own name, so that no other can have them
  for (std::string& name : tensors_.names()) left_over.insert(std::move(name));
  for (const auto& parameter : model.parameters) {
    if (is_adapter(*parameter)) continue;
    const Place place = found_place(model, *parameter);
    const data::TensorInfo* tensor = tensors_.find(place.tensor);
    if (tensor == nullptr || (!place.form && !whole.insert(place.tensor).second)) {
      missing.push_back(parameter->stored.empty()
                            ? parameter->name
                            : fmt::format("{} (by itself or in {})", parameter->name, parameter->stored.front().tensor));
      continue;
    }
    left_over.erase(place.tensor);
    if (place.form) left_over.erase(scales_of(parameter->stored[*place.form], place.tensor));
    const std::string wanted = place.form ? shapes_of(*parameter, parameter->stored[*place.form].tensor) : to_string(parameter->shape);
    const std::string& name = place.form ? place.tensor : parameter->name;
    const bool mxfp4 = place.form && !parameter->stored[*place.form].scales.empty();
    if (mxfp4) {
      if (!fits(*parameter, place))
        wrong.insert(fmt::format("{} (expected the blocks of MXFP4 values of shape {} and their scales {}, both U8, got {} {})", name,
                                 wanted, parameter->stored[*place.form].scales, to_string(tensor->dtype), to_string(tensor->shape)));
    } else if (!tensor->foreign.empty()) {
      wrong.insert(
          fmt::format("{} (expected shape {} in F32, F64, BF16 or F16, got {}: convert the tensor first)", name, wanted, tensor->foreign));
    } else if (!fits(*parameter, place)) {
      wrong.insert(fmt::format("{} (expected shape {}, got {})", name, wanted, to_string(tensor->shape)));
    } else if (!is_floating(tensor->dtype)) {
      wrong.insert(fmt::format("{} (expected floating-point numbers, got {})", name, to_string(tensor->dtype)));
    }
    places_.emplace(parameter->name, place);
  }
  others_.assign(left_over.begin(), left_over.end());
  const bool part =
      std::ranges::any_of(places_, [](const auto& place) { return place.second.tensor.find(kTextPart) != std::string::npos; });
  if (part) std::erase_if(left_over, [](const std::string& name) { return name.find(kTextPart) == std::string::npos; });
  if (std::ranges::any_of(model.parameters, [&](const auto& p) { return is_tied(model, *p); })) left_over.erase(head_name());
  std::erase_if(left_over, is_known_buffer);
  std::erase_if(left_over, [blocks = multi_token_blocks(left_over)](const std::string& name) { return blocks.contains(block_of(name)); });
  if (!model.reads_images()) std::erase_if(left_over, is_of_no_module);
  refuse_if_any(folder, "these parameters of the model in config.json are missing", missing,
                "check that config.json and the weight files are of the same model");
  refuse_if_any(folder, "these tensors do not match config.json", Names(wrong.begin(), wrong.end()),
                "check that config.json and the weight files are of the same model");
  refuse_if_any(folder, "these tensors belong to no parameter of the model in config.json", Names(left_over.begin(), left_over.end()),
                "check that this model type is supported (docs/models.md)");
  check_tied_head(model, folder);
}

std::optional<std::string> FolderWeights::present(const std::string& name) const {
  if (tensors_.find(name) != nullptr) return name;
  for (const std::string& in_a_whole : names_in_a_whole(name)) {
    if (tensors_.find(in_a_whole) != nullptr) return in_a_whole;
  }
  if (has_bare_form(name) && tensors_.find(bare(name)) != nullptr) return bare(name);
  return {};
}

FolderWeights::Place FolderWeights::found_place(const nn::Sequential& model, const nn::Parameter& parameter) const {
  if (auto name = present(parameter.name)) return {*std::move(name)};
  if (is_tied(model, parameter) && tensors_.find(head_name()) != nullptr) return {head_name()};
  std::optional<Place> misshapen;
  for (size_t form = 0; form < parameter.stored.size(); ++form) {
    auto name = present(parameter.stored[form].tensor);
    if (!name) continue;
    Place place{*std::move(name), form};
    if (fits(parameter, place)) return place;
    if (!misshapen) misshapen = std::move(place);
  }
  return misshapen.value_or(Place{parameter.name});
}

bool FolderWeights::fits(const nn::Parameter& parameter, const Place& place) const {
  if (!place.form) return tensors_.find(place.tensor)->shape == parameter.shape;
  const nn::StoredPart& part = parameter.stored[*place.form];
  if (part.scales.empty()) return tensors_.find(place.tensor)->shape == part.shape;
  return data::is_mxfp4(tensors_, place.tensor, scales_of(part, place.tensor), part.shape);
}

// Returns the name that the folder has for the part's scales: it begins as that of the blocks.
std::string FolderWeights::scales_of(const nn::StoredPart& part, const std::string& blocks) const {
  if (part.scales.empty()) return {};
  return present(part.scales).value_or(blocks);
}

std::string FolderWeights::head_name() const {
  const std::string published = std::string(kTextPart) + kHeadName;
  return tensors_.find(published) != nullptr ? published : kHeadName;
}

void FolderWeights::check_tied_head(const nn::Sequential& model, const std::filesystem::path& folder) const {
  const std::string head = head_name();
  if (tensors_.find(head) == nullptr) return;
  for (const auto& parameter : model.parameters) {
    if (!is_tied(model, *parameter) || place_of(*parameter).tensor == head) continue;
    if (holds_equal(tensors_, place_of(*parameter).tensor, head)) continue;
    throw Error(ErrorCode::data, fmt::format("[weights] {}: expected {} to equal {}, because config.json sets tie_word_embeddings, got "
                                             "other values: set \"tie_word_embeddings\": false to keep both",
                                             folder.string(), head, place_of(*parameter).tensor));
  }
}

const FolderWeights::Place& FolderWeights::place_of(const nn::Parameter& parameter) const {
  const auto place = places_.find(parameter.name);
  require(place != places_.end(), "[weights] expected a parameter of this model, got one of another model");
  return place->second;
}

const nn::StoredPart* FolderWeights::stored_part(const nn::Parameter& parameter) const {
  const Place& place = place_of(parameter);
  return place.form ? &parameter.stored.at(*place.form) : nullptr;
}

void FolderWeights::read_part(const nn::Parameter& parameter, const nn::StoredPart& part, i64 begin, std::span<std::byte> out) const {
  const std::string& tensor = place_of(parameter).tensor;
  const DType dtype = stored_dtype(parameter);
  const std::string scales = scales_of(part, tensor);
  const auto whole = [&](i64 at, std::span<std::byte> bytes) {
    scales.empty() ? tensors_.read_as(tensor, at, dtype, bytes) : data::read_mxfp4(tensors_, tensor, scales, at, bytes);
  };
  parts_.read(part, parameter.elems(), tensor, size_of(dtype), whole, begin, out);
}

void FolderWeights::read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const {
  require_range(parameter, begin, std::ssize(out));
  const nn::StoredPart* part = stored_part(parameter);
  if (part == nullptr) return tensors_.read(place_of(parameter).tensor, begin, out);
  constexpr i64 kPiece = 4096;
  std::array<std::byte, kPiece * sizeof(double)> stored;
  const DType dtype = stored_dtype(parameter);
  for (i64 at = 0; at < std::ssize(out); at += kPiece) {
    const auto piece = out.subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(kPiece, std::ssize(out) - at)));
    const auto bytes = std::span(stored).first(piece.size() * static_cast<size_t>(size_of(dtype)));
    read_part(parameter, *part, begin + at, bytes);
    data::widen_stored(bytes, dtype, piece);
  }
}

void FolderWeights::read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const {
  require_range(parameter, begin, std::ssize(out) / size_of(dtype));
  const nn::StoredPart* part = stored_part(parameter);
  if (part == nullptr) return tensors_.read_as(place_of(parameter).tensor, begin, dtype, out);
  if (dtype == stored_dtype(parameter)) return read_part(parameter, *part, begin, out);
  WeightSource::read_as(parameter, begin, dtype, out);
}

DType FolderWeights::stored_dtype(const nn::Parameter& parameter) const {
  const nn::StoredPart* part = stored_part(parameter);
  return part != nullptr && !part->scales.empty() ? DType::bf16 : tensors_.find(place_of(parameter).tensor)->dtype;
}

AveragedWeights::AveragedWeights(const nn::Sequential& model, std::unique_ptr<WeightSource> others, const std::filesystem::path& file)
    : others_(std::move(others)), file_(file, data::FolderChecksums::of(file.parent_path()).find(file.filename().string())) {
  bool any = false;
  for (const auto& p : model.parameters) {
    const data::TensorInfo* average = file_.find(p->name + kAverageSuffix);
    any |= average != nullptr;
    if (!average || (average->shape == p->shape && is_floating(average->dtype))) continue;
    throw Error(ErrorCode::data, fmt::format("[weights] {}: expected {} to have shape {}, got {}", file.string(), average->name,
                                             to_string(p->shape), to_string(average->shape)));
  }
  if (!any) {
    throw Error(
        ErrorCode::usage,
        fmt::format(
            "[weights] expected averaged (EMA) weights in {}, got none: a run saves them only with train --ema DECAY; leave --ema out",
            file.string()));
  }
}

void AveragedWeights::read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const {
  const data::TensorInfo* average = file_.find(parameter.name + kAverageSuffix);
  if (!average) return others_->read(parameter, begin, out);
  require_range(parameter, begin, std::ssize(out));
  file_.read_wide(*average, begin, out);
}

void AveragedWeights::read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const {
  if (!file_.find(parameter.name + kAverageSuffix)) return others_->read_as(parameter, begin, dtype, out);
  WeightSource::read_as(parameter, begin, dtype, out);
}

void fill(const nn::Sequential& model, const WeightSource& source) {
  for (const auto& parameter : model.parameters) {
    const Tensor value = parameter->value();
    value.storage()->written();
    if (!value.device().is_cuda()) {
      fill_one(*parameter, source, value);
      continue;
    }
    const Tensor host = to_host(value);
    fill_one(*parameter, source, host);
    transfer(value.raw(), host.raw(), host.bytes());
  }
}

}  // namespace spillway::models
