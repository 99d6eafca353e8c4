// Opens the data files that a run's flags name. An image model reads images. A language model reads token files, or text that is tokenized
// once and cached.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "app/checkpoints/model_source.h"
#include "app/flags/config.h"
#include "data/documents/document_rows.h"
#include "data/documents/prepare.h"
#include "data/images/open_images.h"
#include "data/loader/loader.h"

namespace spillway::app {

/// Returns the tokenizer that --tokenizer names, or else the one in the model's folder. If there is none, returns the tokenizer that has
/// one token per byte. Throws Error(usage) if `for_text` is set, there is no tokenizer, and the model has weights that another program
/// trained. Throws Error(data) if the tokenizer's file cannot be read.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const ResourceConfig& config, const ModelSource& source, bool for_text);
/// Returns whether at least one path is text rather than a token file (.bin, .idx).
bool any_text(const std::vector<std::string>& paths);
/// Returns the requested chat template, which `wish` gives as a file or as the name of a template in `folder`. Without a request it returns
/// the folder's own template, if there is one. Throws Error(usage) for an unknown name and Error(data) for an unreadable template.
std::optional<data::ChatTemplate> chat_template_of(const std::optional<std::string>& wish,
                                                   const std::optional<std::filesystem::path>& folder);
/// Returns the folder in which chat templates are looked up: the folder of the tokenizer if source.tokenizer is set, else the model's
/// folder.
std::optional<std::filesystem::path> chat_folder(const ModelSource& source);
/// Returns the folder or file from which tokenizer_of() reads the tokenizer; empty if the model reads bytes.
std::optional<std::filesystem::path> tokenizer_place(const ResourceConfig& config, const ModelSource& source);

/// Holds how far the tokenization has come, and returns it as text for a progress line. Thread-safe.
class PreparationProgress {
 public:
  void set(const std::string& path, i64 done, i64 bytes);
  /// Reports that the process named `holder` is preparing data in the same cache; "" reports that it has finished.
  void set_waits(const std::string& holder);
  std::string text(const std::string& otherwise) const;

 private:
  mutable std::mutex mutex_;
  std::string path_, holder_;
  i64 done_ = 0, bytes_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

/// Returns the folder that caches tokenized text: --data-cache, else a folder beside the run's folder, else (without a run) one in the
/// user's cache folder.
std::string data_cache(const TextConfig& text, const std::filesystem::path& run);
/// Returns whether any path of --data has to be tokenized first.
bool needs_preparation(const TrainConfig& config, const ModelSource& source);

/// Holds how one command tokenizes its text: the files to tokenize, and the options that follow from the flags.
struct TextWay {
  std::shared_ptr<const data::DocumentMaker> maker;
  data::PreparationOptions options;
  std::vector<std::string> prepared;  // paths to tokenize; all others are token files already
};
/// Builds the TextWay for `paths`. `threads` is the number of tokenizer threads. Throws Error(usage) and Error(data).
TextWay text_way(const ResourceConfig& config, const TextConfig& text, const ModelSource& source, const std::vector<std::string>& paths,
                 const std::string& cache, int threads, PreparationProgress* progress);

/// Returns a line that names the special tokens which begin and end each text; empty if there are none.
std::string around_note(const data::DocumentMaker& maker);

/// `unread` has the keys of the JSON rows in `path` that this program does not read, each with the number of rows that have the key.
/// Returns one log line for each of these keys.
std::vector<std::string> unread_notes(const std::string& path, const std::map<std::string, i64>& unread);

/// Returns the tokens of the text at `path`, which must be among `way.prepared`. Throws the errors of prepare, and Error(data) if a token
/// id is not in the vocabulary.
std::unique_ptr<data::PreparedFile> prepared_tokens(const std::string& path, const TextWay& way, i64 vocabulary);

/// Returns how documents are packed into rows. If `in_order` is set, the documents keep the order that they have in the file.
data::RowPacking packing_of(const TextConfig& text, bool in_order);

/// Returns the image shape and the classes that an image model reads.
data::ImageFormat images_read_by(const models::ModelConfig& model);

/// The opened files of --data or --validation-data. It must outlive the samples made from it.
class DataSources {
 public:
  /// Opens `paths`. `wish` says which format and size of image is wanted; a language model ignores it. Throws the errors of prepare,
  /// open_token_sources and open_images.
  DataSources(const std::vector<std::string>& paths, const models::ModelConfig& model, const TextWay& way, data::Split split,
              const data::ImageWish& wish = {});
  /// Returns the samples of all paths. Packs documents into rows of `sequence_length` tokens, and fills notes() with the resulting counts.
  std::unique_ptr<data::Samples> samples(i64 sequence_length, data::RowPacking packing, DType dtype,
                                         const std::optional<data::Augmentation>& augment = {}) const;
  /// Returns the format of the images; null for text.
  const data::ImageFormat* images() const { return images_.empty() ? nullptr : &images_.front()->format(); }
  /// Returns one line for each file of documents, which says what it contains and what was left out, and one line for each unread key.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Source {
    std::unique_ptr<data::TokenSource> tokens;      // set for a token file, else null
    std::unique_ptr<data::PreparedFile> documents;  // set for tokenized text, else null; JSON Lines become rows of documents
    bool rows = false;
  };
  std::vector<Source> texts_;
  std::vector<std::unique_ptr<data::ImageSource>> images_;
  mutable std::vector<std::string> notes_;
};

/// The data of a program that links this library and makes its own data, in place of the files of --data and --validation-data. Each rank
/// of the process calls each function once. If `validation` is empty, the part of the training data that TrainConfig::validation_fraction
/// sets aside is used for validation.
struct OwnData {
  std::function<std::unique_ptr<data::Samples>()> training, validation;
};

/// The model and the data of a program that makes them itself, in place of a model's name and the paths of data files. For each empty
/// member, TrainConfig says where the model or the data is found.
struct OwnParts {
  std::function<nn::Sequential(DType)> model;  // builds the model with weights of the given type; TrainConfig::model is the model's name
  OwnData data;
};

/// The data of a run. `held_out` is the validation data, from --validation-data or from --validation-fraction of the training data.
struct RunData {
  /// Opens the data of data-parallel rank `rank`. If the model is an image preset, its image shape and classes are those of the data; this
  /// constructor writes them to `source.config`. `workers` is the number of loader threads.
  RunData(const TrainConfig& config, int rank, int workers, ModelSource& source, PreparationProgress* progress = nullptr);
  /// Takes the data that a program makes itself.
  RunData(const TrainConfig& config, int rank, int workers, const OwnData& own, const ModelSource& source);

  /// Returns one line for each source of a weighted mixture. The line says which share of the rows comes from the source, from the row at
  /// which the mixture starts to row `rows` of the run, and how many times the run has then passed over the source.
  std::vector<std::string> mixture_notes(const TrainConfig& config, i64 rows) const;

  std::string text_note;  // around_note() of the data; empty if all of it is token files
  std::optional<DataSources> sources, validation_sources;
  std::unique_ptr<data::Loader> training;        // settle_mixture() may still set where a mixture resumes
  std::unique_ptr<const data::Loader> held_out;  // validation data; null if the run has none
};

}  // namespace spillway::app
