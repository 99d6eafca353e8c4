// Opens the data files that a run's flags name. An image model reads images. A language model reads token files, or text that is tokenized
// once and cached.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "data/documents/document_rows.h"
#include "data/documents/prepare.h"
#include "data/images/open_images.h"
#include "data/loader/loader.h"
#include "trainer/checkpoints/model_source.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// Returns the tokenizer that --tokenizer names, or the one in the model's folder if the flag is not given. Without
/// either, returns a tokenizer that has one token per byte. Throws Error(usage) if `for_text` is set, there is no
/// tokenizer, and another program trained the model's weights. Throws Error(data) if the tokenizer's file cannot be read.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const ResourceConfig& config, const ModelSource& source, bool for_text);
/// Returns whether at least one path is text rather than a token file (.bin, .idx).
bool any_text(const std::vector<std::string>& paths);
/// Returns the requested chat template, which `wish` gives as a file or as the name of a template in `folder`. If `wish` is empty, returns
/// the folder's own template, or nothing if the folder has none. Throws Error(usage) for an unknown name and Error(data) for an unreadable
/// template.
std::optional<data::ChatTemplate> chat_template_of(const std::optional<std::string>& wish,
                                                   const std::optional<std::filesystem::path>& folder);
/// Returns the folder in which chat templates are looked up: the tokenizer's
/// folder if source.tokenizer is set, otherwise the model's folder.
std::optional<std::filesystem::path> chat_folder(const ModelSource& source);
/// Returns the folder or file from which tokenizer_of() reads the tokenizer. The result is empty if the model reads bytes.
std::optional<std::filesystem::path> tokenizer_place(const ResourceConfig& config, const ModelSource& source);

/// PreparationProgress says how far the tokenization of the data has come, as text for a progress line. Thread-safe.
class PreparationProgress {
 public:
  void set(const std::string& path, i64 done, i64 bytes);
  /// Reports that the process named `holder` is preparing data in the same cache. An empty `holder` reports that it has finished.
  void set_waits(const std::string& holder);
  std::string text(const std::string& otherwise) const;

 private:
  mutable std::mutex mutex_;
  std::string path_, holder_;
  i64 done_ = 0, bytes_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

/// Returns the folder that caches tokenized text: --data-cache if given, otherwise a folder
/// beside the run's folder. Without a run, it is a folder in the user's cache folder.
std::string data_cache(const TextConfig& text, const std::filesystem::path& run);
/// Returns whether any path of --data must be tokenized before training.
bool needs_preparation(const TrainConfig& config, const ModelSource& source);

/// TextWay says how one command tokenizes its text: which files it tokenizes, and with which options.
struct TextWay {
  std::shared_ptr<const data::DocumentMaker> maker;
  data::PreparationOptions options;
  std::vector<std::string> prepared;  // paths to tokenize; all other paths are token files already
};
/// Builds the TextWay for `paths`. `threads` is the number of tokenizer threads. Throws Error(usage) and Error(data).
TextWay text_way(const ResourceConfig& config, const TextConfig& text, const ModelSource& source, const std::vector<std::string>& paths,
                 const std::string& cache, int threads, PreparationProgress* progress);

/// Returns a line that names the special tokens which begin and end each text. The result is empty if there are no such tokens.
std::string around_note(const data::DocumentMaker& maker);

/// Returns one log line for each key of `unread`. `unread` has the keys of the JSON rows in
/// `path` that this program does not read, each with the number of rows that have the key.
std::vector<std::string> unread_notes(const std::string& path, const std::map<std::string, i64>& unread);

/// Returns the tokens of the text at `path`, which must be one of `way.prepared`. Throws
/// the errors of prepare, and Error(data) if a token id is not in the vocabulary.
std::unique_ptr<data::PreparedFile> prepared_tokens(const std::string& path, const TextWay& way, i64 vocabulary);

/// Returns how documents are packed into rows. If `in_order` is set, the documents keep their order in the file.
data::RowPacking packing_of(const TextConfig& text, bool in_order);

/// Returns the image shape and the classes that an image model reads.
data::ImageFormat images_read_by(const models::ModelConfig& model);

/// DataSources holds the opened files of --data or --validation-data. It must outlive the samples that are made from it.
class DataSources {
 public:
  /// Opens `paths`. `wish` gives the format and size of images; a language model
  /// ignores it. Throws the errors of prepare, open_token_sources and open_images.
  DataSources(const std::vector<std::string>& paths, const models::ModelConfig& model, const TextWay& way, data::Split split,
              const data::ImageWish& wish = {});
  /// Returns the samples of all paths. Packs documents into rows of `sequence_length` tokens, and adds the resulting counts to notes().
  std::unique_ptr<data::Samples> samples(i64 sequence_length, data::RowPacking packing, DType dtype,
                                         const std::optional<data::Augmentation>& augment = {}) const;
  /// Returns the format of the images, or null if the data is text.
  const data::ImageFormat* images() const { return images_.empty() ? nullptr : &images_.front()->format(); }
  /// Returns one line for each file of documents, which says what the file contains and what was left out, and one line for each unread key
  /// of JSON rows.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Source {
    std::unique_ptr<data::TokenSource> tokens;      // set for a token file, otherwise null
    std::unique_ptr<data::PreparedFile> documents;  // set for tokenized text, otherwise null; JSON Lines become rows of documents
    bool rows = false;
  };
  std::vector<Source> texts_;
  std::vector<std::unique_ptr<data::ImageSource>> images_;
  mutable std::vector<std::string> notes_;
};

/// OwnData is the data of a program that links this library and makes its own data, in place of the files of
/// --data and --validation-data. Each rank of the process calls each function once. If `validation` is empty,
/// validation uses the part of the training data that TrainConfig::validation_fraction reserves for it.
struct OwnData {
  std::function<std::unique_ptr<data::Samples>()> training, validation;
};

/// OwnParts is the model and the data of a program that makes them itself, in place of a model's name and
/// the paths of data files. For each empty member, TrainConfig says where to find the model or the data.
struct OwnParts {
  // builds the model with weights of the given type; TrainConfig::model is then the name of the model
  std::function<nn::Sequential(DType)> model;
  OwnData data;
};

/// RunData is the data of a run. `held_out` is the validation data, from --validation-data or from --validation-fraction of the training
/// data.
struct RunData {
  /// Opens the data of data-parallel rank `rank`. An image preset gets the image shape and classes of the
  /// data, which this constructor writes to `source.config`. `workers` is the number of loader threads.
  RunData(const TrainConfig& config, int rank, int workers, ModelSource& source, PreparationProgress* progress = nullptr);
  /// Uses the data `own` that a program makes itself.
  RunData(const TrainConfig& config, int rank, int workers, const OwnData& own, const ModelSource& source);

  /// Returns one line for each source of a weighted mixture. The line says which share of the rows comes from the source, from
  /// the row at which the mixture starts to row `rows` of the run, and how many passes over the source the run has then made.
  std::vector<std::string> mixture_notes(const TrainConfig& config, i64 rows) const;

  std::string text_note;  // a line on the special tokens around each text (around_note()); empty if all data is token files
  std::optional<DataSources> sources, validation_sources;
  std::unique_ptr<data::Loader> training;        // the training data; settle_mixture() may still set at which row a mixture resumes
  std::unique_ptr<const data::Loader> held_out;  // validation data; null if the run has none
};

}  // namespace spillway::trainer
