// The data of a run as its flags name it, of the kind that the model reads: images, files of tokens, or text that is made into tokens once.
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

/// The tokenizer of --tokenizer, or else the model folder's own; bytes for models that have none and no weights. Error(usage): a model with
/// weights has none, and `for_text` wants one; Error(data) from its file.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const ResourceConfig& config, const ModelSource& source, bool for_text);
/// Whether text lies at one of the paths.
bool any_text(const std::vector<std::string>& paths);
/// The chat template that is wished for, a file or a name among the folder's; without a wish the folder's own, if there is one.
/// Error(usage) for a name that is not there, Error(data).
std::optional<data::ChatTemplate> chat_template_of(const std::optional<std::string>& wish,
                                                   const std::optional<std::filesystem::path>& folder);
/// The folder whose chat templates count: that of source.tokenizer, else the model's own.
std::optional<std::filesystem::path> chat_folder(const ModelSource& source);
/// The folder or file of that tokenizer; none: bytes.
std::optional<std::filesystem::path> tokenizer_place(const ResourceConfig& config, const ModelSource& source);

/// What is said while text is made into tokens, from any thread.
class PreparationProgress {
 public:
  void set(const std::string& path, i64 done, i64 bytes);
  /// While another process, which is named, has the cache; "": it no longer has.
  void set_waits(const std::string& holder);
  std::string text(const std::string& otherwise) const;

 private:
  mutable std::mutex mutex_;
  std::string path_, holder_;
  i64 done_ = 0, bytes_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

/// Where text is kept as tokens: --data-cache, else a folder beside the run's, else, without a run, one in the user's cache.
std::string data_cache(const TextConfig& text, const std::filesystem::path& run);
/// Whether some of --data has to become tokens first.
bool needs_preparation(const TrainConfig& config, const ModelSource& source);

/// How text becomes tokens, of flags that all of a command's text has.
struct TextWay {
  std::shared_ptr<const data::DocumentMaker> maker;
  data::PreparationOptions options;
  std::vector<std::string> prepared;  // paths that it takes; others are tokens already
};
/// `threads`: for making tokens. Error(usage), Error(data).
TextWay text_way(const ResourceConfig& config, const TextConfig& text, const ModelSource& source, const std::vector<std::string>& paths,
                 const std::string& cache, int threads, PreparationProgress* progress);

/// A line on the special tokens that texts of rows begin and end with; empty where there are none.
std::string around_note(const data::DocumentMaker& maker);

/// A line for each key that rows have and nobody reads, with the number of rows that have it.
std::vector<std::string> unread_notes(const std::string& path, const std::map<std::string, i64>& unread);

/// What of `way.prepared` lies at `path`, as tokens. Errors are prepare's; Error(data): ids that the vocabulary has not.
std::unique_ptr<data::PreparedFile> prepared_tokens(const std::string& path, const TextWay& way, i64 vocabulary);

/// How rows of documents are packed: in the order of their file where that is wanted of the rows.
data::RowPacking packing_of(const TextConfig& text, bool in_order);

/// What a model that reads images reads.
data::ImageFormat images_read_by(const models::ModelConfig& model);

/// What lies at paths of --data or --validation-data; it outlives its samples.
class DataSources {
 public:
  /// `wish`: of images. Errors are prepare's, open_token_sources' and open_images'.
  DataSources(const std::vector<std::string>& paths, const models::ModelConfig& model, const TextWay& way, data::Split split,
              const data::ImageWish& wish = {});
  /// Rows of documents are counted in notes().
  std::unique_ptr<data::Samples> samples(i64 sequence_length, data::RowPacking packing, DType dtype,
                                         const std::optional<data::Augmentation>& augment = {}) const;
  /// Of images, else null.
  const data::ImageFormat* images() const { return images_.empty() ? nullptr : &images_.front()->format(); }
  /// A line a file of documents: what is in it and what was left out; and one for each key of its lines that is not read.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Source {
    std::unique_ptr<data::TokenSource> tokens;      // one of these
    std::unique_ptr<data::PreparedFile> documents;  // in rows of their own where it is JSON Lines
    bool rows = false;
  };
  std::vector<Source> texts_;
  std::vector<std::unique_ptr<data::ImageSource>> images_;
  mutable std::vector<std::string> notes_;
};

/// A run's data. `held_out` serves validation, from --validation-data or the fraction.
struct RunData {
  /// A preset that reads images takes their shape and classes: they become `source.config`'s. `workers`: threads of the loaders.
  RunData(const TrainConfig& config, int rank, int workers, ModelSource& source, PreparationProgress* progress = nullptr);

  /// A line each source of a mixture: its share of the run's rows up to `rows`, and how often they walk it.
  std::vector<std::string> mixture_notes(const TrainConfig& config, i64 rows) const;

  std::string text_note;  // around_note() of the data; empty where all of it is tokens already
  std::optional<DataSources> sources, validation_sources;
  std::unique_ptr<data::Loader> training;        // its mixture may still be told where to go on (settle_mixture)
  std::unique_ptr<const data::Loader> held_out;  // null: no validation
};

}  // namespace spillway::app
