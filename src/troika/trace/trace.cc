#include "troika/trace/trace.h"

#include <algorithm>

namespace troika {

double Trace::duration_s() const {
  double end = 0;
  for (const Span& span : spans) end = std::max(end, span.end_s);
  return end;
}

}  // namespace troika
