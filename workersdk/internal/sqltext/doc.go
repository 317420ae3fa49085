// Package sqltext is what the SDK's packages need to speak SQL to a user's database: the
// dialects, the names of tables, and the few calls of a transaction by which any driver
// can be used. The statements themselves stand with those that send them.
//
// Statements are written with ? for their arguments. Times are made and compared by the
// database's clock, so that programs whose clocks differ agree; they are never read as
// times, since drivers differ in how they do that.
package sqltext
