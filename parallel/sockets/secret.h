// What the ranks of a run know and nobody else does: each proves that it knows it without saying it. HMAC-SHA-512-256 of libsodium
// (https://doc.libsodium.org, crypto_auth). Values; thread-safe.
#pragma once
#include <string>
#include <vector>

namespace spillway::parallel {

/// 128 random bits as 32 hexadecimal digits.
std::string random_bits();
/// It has the form of some.
bool are_random_bits(const std::string& text);

class Secret {
 public:
  /// `token`: of any length; it is as good as it is hard to guess.
  explicit Secret(const std::string& token);
  /// Of these words in this order: 64 hexadecimal digits that only who knows the token can make.
  std::string proof_of(const std::vector<std::string>& words) const;
  bool proves(const std::string& proof, const std::vector<std::string>& words) const;

 private:
  std::string key_;
};

}  // namespace spillway::parallel
