#include "trainer/run/data_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "data/template/find_chat_template.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "trainer/checkpoints/checkpoint_tensors.h"
#include "trainer/checkpoints/tokenizer_files.h"
#include "trainer/node/grant.h"
#include "trainer/run/resolve.h"
#include "trainer/settings/weighted_path.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

// Returns `text` as a JSON string, in which control characters are escaped.
std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

std::string contents_of(const fs::path& path) {
  const data::File file = data::File::open(path);
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool is_tokens(const std::string& path) { return fs::path(path).extension() == ".bin" || fs::path(path).extension() == ".idx"; }

std::string note_of(const data::PreparedFile& file, const data::RowCounts& rows) {
  const data::PreparedCounts& all = file.counts();
  std::string note =
      fmt::format("{}: {} documents, {} tokens of which {:.0f} % are targets, in {} rows of {} tokens each ({:.1f} % padding)", file.name(),
                  rows.documents, rows.tokens, 100 * static_cast<double>(rows.targets) / static_cast<double>(std::max<i64>(1, rows.tokens)),
                  rows.rows, rows.sequence_length, 100 * rows.padding());
  if (rows.cut_documents > 0)
    note += fmt::format("; {} documents longer than a row were cut and lost {} tokens", rows.cut_documents, rows.cut_tokens);
  if (all.without_targets > 0) note += fmt::format("; {} documents without a target token were left out", all.without_targets);
  if (rows.without_targets > 0)
    note += fmt::format("; {} documents whose prompt alone fills a row were left out: a longer --sequence-length keeps them",
                        rows.without_targets);
  if (all.bad_lines > 0) note += fmt::format("; {} bad lines were skipped", all.bad_lines);
  return note;
}

bool is_prepared(const std::string& path, bool bytes) {
  const bool packed = path.ends_with(".gz") || path.ends_with(".zst");
  return data::is_json_lines(path) || (data::is_plain_text(path) && (!bytes || packed));
}

}  // namespace

std::optional<data::ChatTemplate> chat_template_of(const std::optional<std::string>& wish, const std::optional<fs::path>& folder) {
  if (wish && fs::is_regular_file(*wish)) return data::ChatTemplate(contents_of(*wish), *wish);
  const std::string name = wish.value_or("");
  auto found = folder ? data::find_chat_template(*folder, name) : std::nullopt;
  if (found || !wish) return found;
  const auto names = folder ? data::chat_template_names(*folder) : std::vector<std::string>();
  throw Error(ErrorCode::usage, fmt::format("[--chat-template] expected a file, or a template of the model{}, got {}",
                                            names.empty() ? ", which has none" : fmt::format(": {}", fmt::join(names, ", ")), name));
}

std::vector<std::string> unread_notes(const std::string& path, const std::map<std::string, i64>& unread) {
  std::vector<std::string> notes;
  for (const auto& [key, lines] : unread) {
    if (lines > 0)
      notes.push_back(fmt::format("{}: the key {}, present in {} row{}, is ignored", path, quoted(key), lines, lines == 1 ? "" : "s"));
  }
  return notes;
}

namespace {

std::string joined(const data::Tokenizer& tokenizer, const std::vector<i32>& ids) {
  std::string text;
  for (const i32 id : ids) text += (text.empty() ? "" : " ") + quoted(tokenizer.token(id));
  return text;
}

}  // namespace

std::string around_note(const data::DocumentMaker& maker) {
  const data::Around around = maker.around_texts();
  const std::string before = joined(maker.tokenizer(), around.before), behind = joined(maker.tokenizer(), around.behind);
  if (before.empty() && behind.empty()) return "";
  const std::string begins = before.empty() ? "has no special token before it" : "begins with " + before;
  const std::string ends = behind.empty() ? "none after it" : "ends with " + behind;
  return fmt::format(
      "each text, and each prompt joined with its completion, {} and {}, as the tokenizer's files define; a conversation gets the special "
      "tokens that its chat "
      "template writes",
      begins, behind.empty() ? "has " + ends : ends);
}

std::optional<fs::path> chat_folder(const ModelSource& source) {
  if (!source.tokenizer) return source.folder;
  return fs::is_directory(*source.tokenizer) ? *source.tokenizer : source.tokenizer->parent_path();
}

std::string data_cache(const TextConfig& text, const fs::path& run) {
  if (text.data_cache) return *text.data_cache;
  if (run.empty()) return (cache_folder(Host{}) / "data").string();
  const fs::path whole = fs::absolute(run).lexically_normal();
  return ((whole.has_filename() ? whole : whole.parent_path()).parent_path() / "data-cache").string();
}

bool needs_preparation(const TrainConfig& config, const ModelSource& source) {
  const bool bytes = !tokenizer_place(config, source);
  return std::ranges::any_of(weighted_paths(config.data).paths, [&](const std::string& path) { return is_prepared(path, bytes); });
}

namespace {

// Returns whether `source` is an adapter checkpoint without a tokenizer. Such adapters were trained on bytes or on token files, even if
// their base model has a tokenizer.
bool adapters_on_bytes(const ModelSource& source) {
  return source.adapter && fs::exists(*source.adapter / kStateName) && !fs::exists(*source.adapter / "tokenizer.json");
}

}  // namespace

std::optional<fs::path> tokenizer_place(const ResourceConfig& config, const ModelSource& source) {
  if (config.tokenizer == "bytes") return {};
  if (config.tokenizer) return fs::absolute(*config.tokenizer);
  if (adapters_on_bytes(source)) return {};
  for (const auto& folder : {source.adapter, source.folder}) {
    if (folder && fs::exists(*folder / "tokenizer.json")) return folder;
  }
  return {};
}

std::shared_ptr<const data::Tokenizer> tokenizer_of(const ResourceConfig& config, const ModelSource& source, bool for_text) {
  if (const auto place = tokenizer_place(config, source)) return data::read_tokenizer(*place);
  if (for_text && !config.tokenizer && source.has_weights && !source.made_here && !adapters_on_bytes(source)) {
    throw Error(ErrorCode::usage,
                fmt::format("[tokenizer] expected a tokenizer.json in {}, to tokenize text for the weights there, got none: give "
                            "--tokenizer FILE, token files (.bin), or --tokenizer bytes if the model was trained on bytes",
                            source.folder->string()));
  }
  return std::make_shared<data::ByteTokenizer>();
}

bool any_text(const std::vector<std::string>& paths) {
  return std::ranges::any_of(paths, [](const std::string& p) { return !is_tokens(p); });
}

void PreparationProgress::set(const std::string& path, i64 done, i64 bytes) {
  const std::lock_guard lock(mutex_);
  if (path_ != path) begin_ = std::chrono::steady_clock::now();
  path_ = path, done_ = done, bytes_ = bytes;
}

void PreparationProgress::set_waits(const std::string& holder) {
  const std::lock_guard lock(mutex_);
  holder_ = holder;
}

std::string PreparationProgress::text(const std::string& otherwise) const {
  const std::lock_guard lock(mutex_);
  if (!holder_.empty()) return "waiting for another program, which tokenizes data into the same --data-cache: " + holder_;
  if (path_.empty() || done_ >= bytes_) return otherwise;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const double rate = static_cast<double>(done_) / std::max(seconds, 1e-3);
  return fmt::format("tokenizing {}: {} of {}, {}/s, {} left", path_, format_bytes(done_), format_bytes(bytes_),
                     format_bytes(static_cast<i64>(rate)), format_duration(static_cast<double>(bytes_ - done_) / std::max(rate, 1.0)));
}

TextWay text_way(const ResourceConfig& config, const TextConfig& text, const ModelSource& source, const std::vector<std::string>& paths,
                 const std::string& cache, int threads, PreparationProgress* progress) {
  TextWay way;
  const auto tokenizer = tokenizer_of(config, source, any_text(paths));
  const bool bytes = dynamic_cast<const data::ByteTokenizer*>(tokenizer.get()) != nullptr;
  bool rows = false;
  for (const std::string& path : paths) {
    if (is_prepared(path, bytes)) way.prepared.push_back(path);
    rows |= data::is_json_lines(path);
  }
  if (way.prepared.empty()) return way;
  const auto place = tokenizer_place(config, source);
  const std::optional<fs::path> folder = place && !fs::is_directory(*place) ? place->parent_path() : place;
  data::DocumentOptions options;
  if (text.data_format != "auto") options.layout = data::row_layout(text.data_format);
  options.loss_on = text.loss_on;
  options.end_token = tokenizer->named().end_of_text;
  if (!options.end_token && !bytes && !source.config.end_tokens.empty())
    options.end_token = static_cast<i32>(source.config.end_tokens.front());
  auto chat = rows ? chat_template_of(text.chat_template, folder ? folder : source.folder) : std::nullopt;
  auto variables = std::make_shared<const nlohmann::ordered_json>(folder && rows ? data::special_token_variables(*folder)
                                                                                 : nlohmann::ordered_json::object());
  way.options.chat = chat ? chat->source() + (chat->for_tools() ? chat->for_tools()->source() : "") +
                                variables->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                          : "";
  way.options.tokenizer = bytes ? "bytes" : tokenizer_files(*place).front().second;
  way.options.cache = cache;
  way.options.skip_bad_lines = text.skip_bad_lines;
  way.options.threads = threads;
  if (progress) {
    way.options.progress = [progress](const std::string& path, i64 done, i64 all) { progress->set(path, done, all); };
    way.options.waits = [progress](const std::string& holder) { progress->set_waits(holder); };
  }
  way.maker = std::make_shared<data::DocumentMaker>(tokenizer, std::move(chat), std::move(variables), options);
  return way;
}

std::unique_ptr<data::PreparedFile> prepared_tokens(const std::string& path, const TextWay& way, i64 vocabulary) {
  auto file = data::prepare(path, *way.maker, way.options);
  if (const i64 least = file->counts().least_vocabulary; least > vocabulary) {
    throw Error(ErrorCode::data, fmt::format("[data] {}: expected token ids from 0 to {}, got {}: the tokenizer has a larger vocabulary "
                                             "than the model; give the model's own tokenizer",
                                             path, vocabulary - 1, least - 1));
  }
  return file;
}

namespace {

std::optional<data::Augmentation> augmentation(const TrainConfig& config) {
  if (config.augment == "none") return {};
  return data::Augmentation{config.augment == "flip" ? 0 : 4, RandomKey{config.seed}.derive("augment")};
}

void take_images(const data::ImageFormat& images, models::ModelConfig& model) {
  model.image_CHW = images.shape_CHW;
  model.vocabulary = images.classes;
  model.class_names = images.class_names;
}

}  // namespace

data::ImageFormat images_read_by(const models::ModelConfig& model) { return {model.image_CHW, model.vocabulary, model.class_names}; }

data::RowPacking packing_of(const TextConfig& text, bool in_order) {
  if (!text.packing) return data::RowPacking::off;
  return in_order ? data::RowPacking::in_order : data::RowPacking::best_fit;
}

DataSources::DataSources(const std::vector<std::string>& paths, const models::ModelConfig& model, const TextWay& way, data::Split split,
                         const data::ImageWish& wish) {
  if (model.reads_images()) {
    images_ = data::open_images(paths, split, wish);
    return;
  }
  for (const std::string& path : paths) {
    Source& source = texts_.emplace_back();
    if (std::ranges::find(way.prepared, path) == way.prepared.end()) {
      source.tokens = std::move(data::open_token_sources({path}, model.vocabulary).front());
      continue;
    }
    source.documents = prepared_tokens(path, way, model.vocabulary);
    source.rows = data::is_json_lines(path);
  }
}

std::unique_ptr<data::Samples> DataSources::samples(i64 sequence_length, data::RowPacking packing, DType dtype,
                                                    const std::optional<data::Augmentation>& augment) const {
  if (!images_.empty()) return data::images_of(images_, dtype, augment);
  std::vector<std::unique_ptr<data::TextRows>> rows;
  notes_.clear();
  for (const Source& source : texts_) {
    if (!source.rows) {
      rows.push_back(data::windows_of(source.tokens ? *source.tokens : *source.documents, sequence_length));
      continue;
    }
    data::RowCounts counts;
    rows.push_back(data::document_rows(*source.documents, sequence_length, packing, counts));
    notes_.push_back(note_of(*source.documents, counts));
    std::ranges::move(unread_notes(source.documents->name(), source.documents->counts().unread), std::back_inserter(notes_));
  }
  return data::rows_of(std::move(rows), sequence_length);
}

RunData::RunData(const TrainConfig& config, int rank, int workers, ModelSource& source, PreparationProgress* progress) {
  models::ModelConfig& model = source.config;
  const WeightedPaths training_paths = weighted_paths(config.data);
  if (model.reads_images() && !training_paths.weights.empty())
    throw Error(ErrorCode::usage,
                "[--data] expected no mixture weights for images, because all image files are one source: write the path without a weight");
  std::vector<std::string> paths = training_paths.paths;
  paths.insert(paths.end(), config.validation_data.begin(), config.validation_data.end());
  TextWay way;
  if (!model.reads_images()) {
    const int threads = config.threads ? static_cast<int>(*config.threads) : core_grant(Host{}, 1, 1).threads;
    const std::string run = config.out.empty() ? default_out(config) : config.out;
    way = text_way(config, config, source, paths, data_cache(config, run), threads, progress);
    if (way.maker) text_note = around_note(*way.maker);
  }
  const bool takes_any_images = model.reads_images() && !source.folder;
  data::ImageWish wish{.side = config.image_size};
  if (!takes_any_images) wish = {.format = images_read_by(model)};
  sources.emplace(training_paths.paths, model, way, data::Split::training, wish);
  if (takes_any_images) take_images(*sources->images(), model);
  data::LoaderOptions options = loader_options(config, rank);
  options.weights = training_paths.weights;
  options.workers = workers;
  // Image data always drops an incomplete last step. Batch-norm statistics are taken over whole batches, and padded rows would distort
  // them.
  options.drop_last |= model.reads_images();
  const data::RowPacking packing = packing_of(config, config.data_order == DataOrder::sequential);
  const auto loader = [&](const DataSources& from, const std::optional<data::Augmentation>& augment = {}) {
    return std::make_unique<data::Loader>(from.samples(options.sequence_length, packing, weight_dtype(*config.precision), augment),
                                          options);
  };
  training = loader(*sources, augmentation(config));
  if (!config.validation_data.empty()) {
    validation_sources.emplace(config.validation_data, model, way, data::Split::held_out, data::ImageWish{.format = images_read_by(model)});
    options.validation_fraction = 1;
    options.weights.clear();
    held_out = loader(*validation_sources);
  } else if (training->validation_windows() > 0) {
    held_out = loader(*sources);
  }
}

RunData::RunData(const TrainConfig& config, int rank, int workers, const OwnData& own, const ModelSource& source) {
  if (!config.data.empty() || !config.validation_data.empty())
    throw Error(ErrorCode::usage,
                "[data] expected no paths of data files, because the program makes its data itself, got some: leave them out");
  data::LoaderOptions options = loader_options(config, rank);
  options.workers = workers;
  options.drop_last |= source.own ? source.build(DType::f32).reads_images() : source.config.reads_images();
  training = std::make_unique<data::Loader>(own.training(), options);
  if (own.validation) {
    options.validation_fraction = 1;
    held_out = std::make_unique<const data::Loader>(own.validation(), options);
  } else if (training->validation_windows() > 0) {
    held_out = std::make_unique<const data::Loader>(own.training(), options);
  } else if (config.validate_every || config.validation_steps) {
    throw Error(ErrorCode::usage,
                "[validate_every] expected validation data (OwnData::validation) or a validation_fraction as well, got "
                "neither: there is no validation data");
  }
}

std::vector<std::string> RunData::mixture_notes(const TrainConfig& config, i64 rows) const {
  std::vector<std::string> notes;
  const std::vector<std::string> paths = weighted_paths(config.data).paths;
  for (const data::Loader::Part& part : training->parts(rows)) {
    const i64 from = training->mixture_start()->at;
    const double share = static_cast<double>(part.rows) / static_cast<double>(std::max<i64>(1, rows - from));
    const auto walks = static_cast<double>(part.before + part.rows) / static_cast<double>(part.windows);
    notes.push_back(
        fmt::format("{:.1f} % of the rows{} come from {}: {} rows{}; in all the run passes {:.1f} times over the {} rows of this source",
                    100 * share, from > 0 ? fmt::format(" from row {} on", from) : "", paths[notes.size()], part.rows,
                    from > 0 ? fmt::format(" after {} earlier ones", part.before) : "", walks, part.windows));
  }
  return notes;
}

}  // namespace spillway::trainer
