// Opens the data that a run's flags name, in the kind that the model reads: images, token files, or text that is tokenized once and cached.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "app/checkpoints/model_source.h"
#include "app/flags/config.h"
#include "data/documents/document_rows.h"
#include "data/documents/prepare.h"
#include "data/images/open_images.h"
#include "data/loader.h"

namespace spillway::app {

/// Returns the tokenizer of --tokenizer or else the model folder's own. A model that has neither a tokenizer nor weights reads bytes.
/// Throws Error(usage) if `for_text` is set and a model with weights has no tokenizer, and Error(data) if the tokenizer's file cannot be
/// read.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const ResourceConfig& config, const ModelSource& source, bool for_text);
/// Returns whether at least one path is text rather than a token file (.bin, .idx).
bool any_text(const std::vector<std::string>& paths);
/// Returns the requested chat template, which `wish` gives as a file or as the name of a template in `folder`. Without a request it returns
/// the folder's own template, if there is one. Throws Error(usage) for an unknown name and Error(data) for an unreadable template.
std::optional<data::ChatTemplate> chat_template_of(const std::optional<std::string>& wish,
                                                   const std::optional<std::filesystem::path>& folder);
/// Returns the folder in which chat templates are looked up: that of source.tokenizer, else the model's own.
std::optional<std::filesystem::path> chat_folder(const ModelSource& source);
/// Returns the folder or file from which tokenizer_of() reads the tokenizer; empty if the model reads bytes.
std::optional<std::filesystem::path> tokenizer_place(const ResourceConfig& config, const ModelSource& source);

/// Progress of the tokenization, as text for a progress line. Thread-safe.
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

/// How one command tokenizes all of its text, as its flags ask.
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

/// Returns one line for each key that occurs in the rows but is not read, with the number of rows that have it.
std::vector<std::string> unread_notes(const std::string& path, const std::map<std::string, i64>& unread);

/// Returns the tokens of the text at `path`, which must be among `way.prepared`. Throws the errors of prepare, and Error(data) if a token
/// id is not in the vocabulary.
std::unique_ptr<data::PreparedFile> prepared_tokens(const std::string& path, const TextWay& way, i64 vocabulary);

/// Returns how documents are packed into rows. `in_order` asks for the order of the file.
data::RowPacking packing_of(const TextConfig& text, bool in_order);

/// Returns the image shape and the classes that an image model reads.
data::ImageFormat images_read_by(const models::ModelConfig& model);

/// The opened files of --data or --validation-data. It must outlive the samples made from it.
class DataSources {
 public:
  /// Opens `paths`. `wish` applies to image models only. Throws the errors of prepare, open_token_sources and open_images.
  DataSources(const std::vector<std::string>& paths, const models::ModelConfig& model, const TextWay& way, data::Split split,
              const data::ImageWish& wish = {});
  /// Returns the samples of all paths. Packs documents into rows of `sequence_length` and fills notes() with what came of it.
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

/// The data that a program brings itself, in place of the files of --data and --validation-data. Each rank of the process calls the
/// functions once. An empty `validation` means that validation data are those of TrainConfig::validation_fraction, if any.
struct OwnData {
  std::function<std::unique_ptr<data::Samples>()> training, validation;
};

/// What a program brings itself in place of a model's name and the paths of data files. Whatever is empty is found by TrainConfig.
struct OwnParts {
  std::function<nn::Sequential(DType)> model;  // builds the blocks with weights of this type; TrainConfig::model is its name
  OwnData data;
};

/// The data of a run. `held_out` is the validation data, from --validation-data or from --validation-fraction of the training data.
struct RunData {
  /// Opens the data of data-parallel rank `rank`. A preset image model takes its image shape and classes from the data; they are written to
  /// `source.config`. `workers` is the number of loader threads.
  RunData(const TrainConfig& config, int rank, int workers, ModelSource& source, PreparationProgress* progress = nullptr);
  /// Takes a program's own data.
  RunData(const TrainConfig& config, int rank, int workers, const OwnData& own, const ModelSource& source);

  /// Returns one line for each source of a mixture: its share of the run's rows up to `rows`, and how often the run passes over the source.
  std::vector<std::string> mixture_notes(const TrainConfig& config, i64 rows) const;

  std::string text_note;  // around_note() of the data; empty if all of it is token files
  std::optional<DataSources> sources, validation_sources;
  std::unique_ptr<data::Loader> training;        // settle_mixture() may still set where a mixture resumes
  std::unique_ptr<const data::Loader> held_out;  // validation data; null if the run has none
};

}  // namespace spillway::app
