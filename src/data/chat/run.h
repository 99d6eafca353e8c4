// The account of one rendering: what it may still do and hold, where it stands, and how it fails. Every function of the interpreter that
// can fail or take long is handed this; what containers allocate is charged to it by their allocator, Metered. One thread, which runs one
// rendering at a time.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace spillway::data::chat {

struct Space;

/// How deep values and expressions may nest, and calls of macros.
constexpr int kDeepest = 200;
/// The most arguments by name of a call, and the most parameters of a macro.
constexpr size_t kMostNamed = 1000;
/// Names that are looked through in a step.
constexpr size_t kScannedInAStep = 16;
/// The longest name of a variable, a parameter or an attribute of a namespace, in bytes.
constexpr size_t kLongestName = 256;

/// Takes `bytes` from the limits of the rendering on this thread. Error(data) where they do not suffice.
void charge(size_t bytes);
/// Gives back what charge() took.
void release(size_t bytes) noexcept;

/// The allocator of all containers that hold what a rendering makes. Whatever they allocate is charged to the rendering that runs on this
/// thread before it is allocated, and given back when it is freed; so texts, lists and dicts cannot grow beyond the rendering's limits,
/// whoever makes them. Outside of a rendering, as for the constants of a template's tree, nothing is charged.
template <class T>
struct Metered {
  using value_type = T;

  Metered() = default;
  template <class U>
  Metered(const Metered<U>& /*other*/) {}

  T* allocate(size_t count) {
    charge(count * sizeof(T));
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* items, size_t count) noexcept {
    std::allocator<T>().deallocate(items, count);
    release(count * sizeof(T));
  }
  bool operator==(const Metered&) const { return true; }
};

using String = std::basic_string<char, std::char_traits<char>, Metered<char>>;

template <class T>
using List = std::vector<T, Metered<T>>;

template <class T, class... Arguments>
std::shared_ptr<T> make_metered(Arguments&&... arguments) {
  return std::allocate_shared<T>(Metered<T>(), std::forward<Arguments>(arguments)...);
}

class Run {
 public:
  Run(const std::string& file, std::time_t now);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Throws Error(data): "[chat template] FILE, line N, message M: what".
  [[noreturn]] void fail(const std::string& what) const;

  /// The template, a text or a value of the conversation has so many bytes: what the limits are derived from.
  void count_read(size_t bytes) { read_bytes_ += static_cast<i64>(bytes); }
  /// All has been read. From here on the rendering may take 10 million steps and 16 more for each byte that was read. Its values may take
  /// 64 MiB at once and 32 bytes for each that was read, beside what the conversation itself takes.
  void begin();

  /// Takes from the steps; fails when they are used up. A step is the work for a value or a node of the tree, about 0.1 µs.
  void spend(i64 steps = 1) {
    if (steps > steps_left_) fail_steps();
    steps_left_ -= steps;
  }
  /// Bytes are copied or compared, 256 in a step.
  void spend_bytes(size_t bytes) { spend(1 + static_cast<i64>(bytes / 256)); }
  /// The characters of a text are looked at one by one, or searched for another text: 16 bytes in a step.
  void spend_letters(size_t bytes) { spend(1 + static_cast<i64>(bytes / 16)); }

  /// Bytes that the rendering's values, texts and scopes take now.
  i64 held_bytes() const { return held_bytes_; }
  i64 steps_left() const { return steps_left_; }

  /// A new, empty namespace. It lives as long as this, because templates can make rings of them.
  Space* new_space();

  std::time_t now() const { return now_; }

  int line = 1;     // of the template
  i64 message = 0;  // counted from 1; 0 outside the loop over messages

  /// One level of blocks and expressions inside each other, across the calls of macros; fails beyond 1000, which a thread's stack holds.
  class Level {
   public:
    explicit Level(Run& run) : run_(run) {
      if (++run_.depth_ > 1000)
        run_.fail("expected macros that call each other less deeply, got 1000 blocks and expressions inside each other");
    }
    ~Level() { --run_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Run& run_;
  };

 private:
  friend void charge(size_t bytes);
  friend void release(size_t bytes) noexcept;
  void hold(size_t bytes);
  [[noreturn]] void fail_steps() const;

  // Makes `run` the rendering of this thread for as long as it lives.
  class Current {
   public:
    explicit Current(Run* run);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    Run* outer_;
  };

  const Current current_;  // outlives all that is charged
  const std::string& file_;
  std::time_t now_;
  int depth_ = 0;
  i64 read_bytes_ = 0, held_bytes_ = 0;
  i64 steps_, steps_left_, most_bytes_;  // without limits until begin()
  List<std::unique_ptr<Space>> spaces_;
};

/// Throws Error(data): "[chat template] FILE, line N: what". Long words are cut.
[[noreturn]] void fail_at(const std::string& file, int line, const std::string& what);

}  // namespace spillway::data::chat
