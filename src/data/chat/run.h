// The account of one rendering: what it may still spend, where it stands, and how it fails. Every function of the interpreter that can fail
// or take long is handed this. One thread.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::data::chat {

struct Space;

/// How deep values and expressions may nest, and calls of macros.
constexpr int kDeepest = 200;

class Run {
 public:
  Run(const std::string& file, std::time_t now);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Throws Error(data): "[chat template] FILE, line N, message M: what".
  [[noreturn]] void fail(const std::string& what) const;

  /// Takes from the 10 million steps; fails when they are used up.
  void spend(i64 steps = 1) {
    left_ -= steps;
    if (left_ < 0 || steps < 0) fail_spent();
  }
  /// A text of that many bytes is made or looked through: 64 bytes are a step, so steps bound the memory too.
  void spend_bytes(size_t bytes) { spend(1 + static_cast<i64>(bytes / 64)); }

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
  [[noreturn]] void fail_spent() const;
  const std::string& file_;
  std::time_t now_;
  int depth_ = 0;
  i64 left_ = 10'000'000;
  std::vector<std::unique_ptr<Space>> spaces_;
};

/// Throws Error(data): "[chat template] FILE, line N: what".
[[noreturn]] void fail_at(const std::string& file, int line, const std::string& what);

}  // namespace spillway::data::chat
