#include "troika/parallel/torch_errors.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <string_view>

#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {

std::string explain_torch(const std::string& message) {
  constexpr std::string_view kAsked = "you tried to allocate ";
  const size_t at = message.find(kAsked);
  if (at == std::string::npos) return message;
  int64_t bytes = 0;
  const char* const digits = message.data() + at + kAsked.size();
  if (std::from_chars(digits, message.data() + message.size(), bytes).ec != std::errc()) return message;
  return fmt::format(
      "out of memory: a tensor of {} was asked for at once; make model.width, model.layers or train.batch "
      "smaller, or cut the batch into more micro_batches",
      human_bytes(static_cast<double>(bytes)));
}

void with_plain_errors(const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    throw Error(explain_torch(error.what_without_backtrace()));
  }
}

}  // namespace troika
