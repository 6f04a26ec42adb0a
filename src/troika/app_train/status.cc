#include "troika/app_train/status.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <new>

#include "troika/base/error.h"
#include "troika/parallel/torch_errors.h"

namespace troika {

int status_of(const std::function<int()>& work) noexcept {
  try {
    return work();
  } catch (const UsageError& error) {
    fmt::print(stderr, "troika: {}\n", error.what());
    return 2;
  } catch (const c10::Error& error) {
    fmt::print(stderr, "troika: {}\n", explain_torch(error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "troika: out of memory\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "troika: {}\n", error.what());
  } catch (...) {
    fmt::print(stderr, "troika: an exception of unknown type\n");
  }
  return 1;
}

}  // namespace troika
