// The machine's SQLite for SystemSqlite.java. Errors are RuntimeExceptions with SQLite's own words.
#include <jni.h>
#include <sqlite3.h>

#include <string>

#define METHOD(type, name) extern "C" JNIEXPORT type JNICALL Java_SystemSqlite_##name

namespace {

std::string held(JNIEnv* env, jbyteArray array) {
  std::string out(static_cast<size_t>(env->GetArrayLength(array)), '\0');
  env->GetByteArrayRegion(array, 0, static_cast<jsize>(out.size()), reinterpret_cast<jbyte*>(&out[0]));
  return out;
}

void fail(JNIEnv* env, sqlite3* database) {
  env->ThrowNew(env->FindClass("java/lang/RuntimeException"), sqlite3_errmsg(database));
}

sqlite3_stmt* statement_of(jlong handle) { return reinterpret_cast<sqlite3_stmt*>(handle); }

}  // namespace

METHOD(jlong, open___3B)(JNIEnv* env, jclass, jbyteArray file) {
  sqlite3* database = nullptr;
  if (sqlite3_open(held(env, file).c_str(), &database) != SQLITE_OK) fail(env, database);
  return reinterpret_cast<jlong>(database);
}

METHOD(void, close__J)(JNIEnv*, jclass, jlong database) { sqlite3_close_v2(reinterpret_cast<sqlite3*>(database)); }

METHOD(jlong, prepare)(JNIEnv* env, jclass, jlong database, jbyteArray sql) {
  sqlite3_stmt* statement = nullptr;
  auto* owner = reinterpret_cast<sqlite3*>(database);
  if (sqlite3_prepare_v2(owner, held(env, sql).c_str(), -1, &statement, nullptr) != SQLITE_OK) fail(env, owner);
  return reinterpret_cast<jlong>(statement);
}

METHOD(void, bind)
(JNIEnv* env, jclass, jlong handle, jint index, jint kind, jlong number, jdouble real, jbyteArray bytes) {
  sqlite3_stmt* statement = statement_of(handle);
  const std::string value = bytes == nullptr ? "" : held(env, bytes);
  const auto size = static_cast<int>(value.size());
  int code = kind == 1   ? sqlite3_bind_int64(statement, index, number)
             : kind == 2 ? sqlite3_bind_double(statement, index, real)
             : kind == 3 ? sqlite3_bind_text(statement, index, value.data(), size, SQLITE_TRANSIENT)
             : kind == 4 ? sqlite3_bind_blob(statement, index, value.data(), size, SQLITE_TRANSIENT)
                         : sqlite3_bind_null(statement, index);
  if (code != SQLITE_OK) fail(env, sqlite3_db_handle(statement));
}

METHOD(jboolean, step)(JNIEnv* env, jclass, jlong handle) {
  const int code = sqlite3_step(statement_of(handle));
  if (code != SQLITE_ROW && code != SQLITE_DONE) fail(env, sqlite3_db_handle(statement_of(handle)));
  return code == SQLITE_ROW;
}

METHOD(jlong, getLong)(JNIEnv*, jclass, jlong handle, jint index) {
  return sqlite3_column_int64(statement_of(handle), index);
}

METHOD(jdouble, getDouble)(JNIEnv*, jclass, jlong handle, jint index) {
  return sqlite3_column_double(statement_of(handle), index);
}

METHOD(jboolean, isNull)(JNIEnv*, jclass, jlong handle, jint index) {
  return sqlite3_column_type(statement_of(handle), index) == SQLITE_NULL;
}

METHOD(jbyteArray, getBytes)(JNIEnv* env, jclass, jlong handle, jint index) {
  const void* bytes = sqlite3_column_blob(statement_of(handle), index);
  const int size = sqlite3_column_bytes(statement_of(handle), index);
  jbyteArray out = env->NewByteArray(size);
  if (size > 0) env->SetByteArrayRegion(out, 0, size, static_cast<const jbyte*>(bytes));
  return out;
}

METHOD(void, finish)(JNIEnv*, jclass, jlong handle) { sqlite3_finalize(statement_of(handle)); }
